// lily._native.kernels: a device, tensors in its memory, and each operation of ops.h under its own
// name, so that tests and benchmarks reach single kernels. No part of the engine passes through it.
#include "cpu/kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/bindings.h"
#include "core/error.h"
#include "ops/ops.h"
#include "ops/tensor_check.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lily {
namespace {

using Shape = std::vector<uint64_t>;
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// A tensor that can copy itself to and from NumPy. Operations see its base only.
struct DeviceTensor : Tensor {
  std::shared_ptr<Device> device;
};

DType parse_dtype(const std::string& name) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::u32, DType::u8}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw InvalidInput("dtype '" + name + "' is not known; expected f32, bf16, f16, u32 or u8");
}

Storage parse_storage(const std::string& name) {
  for (Storage storage : {Storage::f32, Storage::bf16, Storage::q4, Storage::q8}) {
    if (name == storage_name(storage)) return storage;
  }
  throw InvalidInput("storage '" + name + "' is not known; expected f32, bf16, q4 or q8");
}

// What NumPy holds for each of our types: bf16 has none of its own and travels as uint16.
nb::dlpack::dtype numpy_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return nb::dtype<float>();
    case DType::u32: return nb::dtype<uint32_t>();
    case DType::u8: return nb::dtype<uint8_t>();
    case DType::bf16:
    case DType::f16: return nb::dtype<uint16_t>();
  }
  return nb::dtype<uint8_t>();
}

DType dtype_of(const AnyArray& array, const std::optional<DType>& asked) {
  for (DType dtype : {DType::f32, DType::u32, DType::u8, DType::bf16, DType::f16}) {
    if (array.dtype() != numpy_dtype(dtype) || (asked && *asked != dtype)) continue;
    if (asked || dtype_bytes(dtype) != 2) return dtype;
  }
  throw InvalidInput(
      "tensor: expected an array of float32, uint32 or uint8, or of uint16 with dtype 'bf16' or "
      "'f16'");
}

DeviceTensor make_tensor(const std::shared_ptr<Device>& device, DType dtype, Shape shape) {
  DeviceTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.device = device;
  tensor.view = View(device->allocate(tensor.elements() * dtype_bytes(dtype)));
  return tensor;
}

std::optional<DType> optional_dtype(const std::optional<std::string>& name) {
  return name ? std::optional(parse_dtype(*name)) : std::nullopt;
}

DeviceTensor tensor_from_array(const std::shared_ptr<Device>& device, const AnyArray& array,
                               const std::optional<std::string>& dtype) {
  Shape shape;
  for (size_t axis = 0; axis < array.ndim(); ++axis) shape.push_back(array.shape(axis));
  DeviceTensor tensor =
      make_tensor(device, dtype_of(array, optional_dtype(dtype)), std::move(shape));
  device->write(tensor.view, array.data(), array.nbytes());
  return tensor;
}

nb::object tensor_to_array(const DeviceTensor& tensor) {
  const size_t bytes = tensor.elements() * dtype_bytes(tensor.dtype);
  auto memory = std::make_unique<std::byte[]>(bytes);
  tensor.device->read(tensor.view, memory.get(), bytes);
  std::byte* data = memory.release();
  nb::capsule owner(data, [](void* at) noexcept { delete[] static_cast<std::byte*>(at); });
  std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
  nb::ndarray<nb::numpy> array(data, shape.size(), shape.data(), owner, nullptr,
                               numpy_dtype(tensor.dtype));
  return nb::cast(array);
}

void write_array(const DeviceTensor& tensor, const AnyArray& array) {
  if (dtype_of(array, tensor.dtype) != tensor.dtype || array.size() != tensor.elements()) {
    throw InvalidInput("write: the array has " + std::to_string(array.size()) +
                       " elements, expected " + std::to_string(tensor.elements()));
  }
  tensor.device->write(tensor.view, array.data(), array.nbytes());
}

DeviceTensor part_of(const DeviceTensor& whole, uint64_t offset, Shape shape) {
  DeviceTensor part = whole;
  part.shape = std::move(shape);
  const size_t unit = dtype_bytes(part.dtype);
  part.view = whole.view.slice(offset * unit, part.elements() * unit);
  return part;
}

// The same memory under another type: how tests make a tensor of the wrong one.
DeviceTensor retyped(const DeviceTensor& tensor, const std::string& dtype) {
  DeviceTensor other = tensor;
  other.dtype = parse_dtype(dtype);
  return other;
}

Matrix make_matrix(const std::string& storage, const Tensor& weight, const Tensor* scales,
                   const Tensor* biases, uint64_t rows, uint64_t cols, uint32_t group_size,
                   uint64_t experts, uint64_t expert_stride_rows) {
  return {.storage = parse_storage(storage),
          .experts = experts,
          .rows = rows,
          .cols = cols,
          .expert_stride_rows = expert_stride_rows ? expert_stride_rows : rows,
          .group_size = group_size,
          .weight = weight.view,
          .scales = scales ? scales->view : View(),
          .biases = biases ? biases->view : View()};
}

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const cpu::KernelTable* table : cpu::kernels_that_run_here()) names.emplace_back(table->isa);
  return names;
}

void bind_tensors(nb::module_& kernels) {
  nb::class_<Tensor>(kernels, "TensorBase", "What an operation sees of a tensor.");
  nb::class_<DeviceTensor, Tensor>(kernels, "Tensor", "Dense rows in the memory of a device.")
      .def_prop_ro(
          "shape", [](const DeviceTensor& self) { return nb::tuple(nb::cast(self.shape)); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", [](const DeviceTensor& self) { return dtype_name(self.dtype); })
      .def("numpy", &tensor_to_array, nb::sig("def numpy(self) -> numpy.typing.NDArray"),
           "A copy; bf16 and f16 as uint16.")
      .def("write", &write_array, "array"_a, "Overwrites all elements.")
      .def("retyped", &retyped, "dtype"_a, "The same memory and shape, read as another type.")
      .def("part", &part_of, "offset"_a, "shape"_a,
           "The tensor of this shape that begins `offset` elements into this one's memory.");
  nb::class_<Matrix>(kernels, "Matrix", "A stored weight [rows, cols], or a stack of experts.")
      .def(
          "__init__",
          [](Matrix* self, const std::string& storage, const Tensor& weight, const Tensor* scales,
             const Tensor* biases, uint64_t rows, uint64_t cols, uint32_t group_size,
             uint64_t experts, uint64_t expert_stride_rows) {
            new (self) Matrix(make_matrix(storage, weight, scales, biases, rows, cols, group_size,
                                          experts, expert_stride_rows));
          },
          "storage"_a, "weight"_a, "scales"_a = nb::none(), "biases"_a = nb::none(), nb::kw_only(),
          "rows"_a, "cols"_a, "group_size"_a = 0, "experts"_a = 1, "expert_stride_rows"_a = 0,
          "expert_stride_rows 0: experts stand `rows` apart.")
      .def_ro("rows", &Matrix::rows)
      .def_ro("cols", &Matrix::cols)
      .def_ro("experts", &Matrix::experts)
      .def_prop_ro("storage", [](const Matrix& self) { return storage_name(self.storage); });
}

Tiles tiles_named(const std::string& name) {
  if (name == "apple") return Tiles::apple;
  if (name == "apple_tensor") return Tiles::apple_tensor;
  if (name == "nvidia") return Tiles::nvidia;
  throw InvalidInput("Step: tiles is '" + name + "', expected 'apple', 'apple_tensor' or 'nvidia'");
}

void bind_device(nb::module_& kernels) {
  nb::class_<Step>(kernels, "Step", "Dispatches recorded for a device to run.")
      .def(nb::new_([](const Device* device, const std::string& tiles) {
             if (!tiles.empty()) return std::make_shared<Step>(tiles_named(tiles));
             return std::make_shared<Step>(device ? device->tiles() : Tiles::apple);
           }),
           "device"_a = nb::none(), "tiles"_a = "",
           "Recorded with the tile sizes that suit the device, or of 'apple', 'apple_tensor' or "
           "'nvidia'.")
      .def("describe", &Step::describe, "One line for each dispatch.")
      .def("clear", &Step::clear)
      .def("__len__", [](const Step& self) { return self.dispatches().size(); });
  nb::class_<Device>(kernels, "Device", "Where tensors live and steps run.")
      .def(nb::new_([](const std::string& name, uint32_t threads, const std::string& isa) {
             DeviceOptions options;
             options.threads = threads;
             options.isa = isa;
             options.check = ops::check_tensor_kernels;
             return open_device(name, options);
           }),
           "name"_a = "cpu", "threads"_a = 0, "isa"_a = "")
      .def_prop_ro("name", [](const Device& self) { return std::string(self.name()); })
      .def_prop_ro("description", &Device::description)
      .def_prop_ro("activation_dtype",
                   [](const Device& self) { return dtype_name(self.activation_dtype()); })
      .def_prop_ro("weight_alignment_bytes", &Device::weight_alignment_bytes)
      .def_prop_ro("memory_total_bytes", &Device::memory_total_bytes,
                   "What the device could hold in all.")
      .def_prop_ro("memory_available_bytes", &Device::memory_available_bytes,
                   "What it could still take now.")
      .def(
          "facts",
          [](const Device& self) {
            nb::dict facts;
            for (const Fact& fact : self.facts()) facts[fact.name.c_str()] = fact.value;
            return facts;
          },
          nb::sig("def facts(self) -> dict[str, str]"),
          "What is enabled on this device and what is not, and the state its machine is in now.")
      .def("tensor", &tensor_from_array, "array"_a, "dtype"_a = nb::none(),
           "A copy of a float32, uint32 or uint8 array, or of uint16 with dtype 'bf16' or 'f16'.")
      .def(
          "zeros",
          [](const std::shared_ptr<Device>& self, const Shape& shape, const std::string& dtype) {
            return make_tensor(self, parse_dtype(dtype), shape);
          },
          "shape"_a, "dtype"_a = "f32")
      .def(
          "run",
          [](Device& self, const Step& step) {
            self.submit(step);
            self.wait();
          },
          "step"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Runs the step and returns when it is done.")
      .def("time_us", &Device::time_us, "step"_a, "repeats"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Microseconds of each of `repeats` runs of the step, by the device's own clock.");
  kernels.attr("CANDIDATES") = static_cast<uint32_t>(kCandidates);
  kernels.attr("SAMPLE_BLOCK_ROWS") = static_cast<uint32_t>(kSampleBlockRows);
  kernels.attr("ATTENTION_MAX_SPLITS") = static_cast<uint32_t>(kAttentionMaxSplits);
  kernels.def("isas", &isas, "Instruction sets with CPU kernels that run here, best first.");
}

void bind_layers(nb::module_& kernels) {
  nb::class_<ops::AttentionTensors>(kernels, "AttentionTensors", "One attention layer's places.")
      .def(
          "__init__",
          [](ops::AttentionTensors* self, const Tensor& proj, const Tensor& q_gain,
             const Tensor& k_gain, const Tensor& inv_freq, const Tensor& k_cache,
             const Tensor& v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim,
             uint32_t rotary_dims, float eps) {
            new (self)
                ops::AttentionTensors{proj,    q_gain,   k_gain,   inv_freq,    k_cache, v_cache,
                                      q_heads, kv_heads, head_dim, rotary_dims, eps};
          },
          nb::kw_only(), "proj"_a, "q_gain"_a, "k_gain"_a, "inv_freq"_a, "k_cache"_a, "v_cache"_a,
          "q_heads"_a, "kv_heads"_a, "head_dim"_a, "rotary_dims"_a, "eps"_a);
  nb::class_<ops::DeltaTensors>(kernels, "DeltaTensors", "One gated-delta layer's places.")
      .def(
          "__init__",
          [](ops::DeltaTensors* self, const Tensor& proj, const Tensor& conv_weight,
             const Tensor& conv_ring, const Tensor& decay_rate, const Tensor& dt_bias,
             const Tensor& gain, const Tensor& state, uint32_t key_heads, uint32_t value_heads,
             uint32_t key_dim, uint32_t value_dim, float eps) {
            new (self)
                ops::DeltaTensors{proj,  conv_weight, conv_ring,   decay_rate, dt_bias,   gain,
                                  state, key_heads,   value_heads, key_dim,    value_dim, eps};
          },
          nb::kw_only(), "proj"_a, "conv_weight"_a, "conv_ring"_a, "decay_rate"_a, "dt_bias"_a,
          "gain"_a, "state"_a, "key_heads"_a, "value_heads"_a, "key_dim"_a, "value_dim"_a, "eps"_a);
  nb::class_<ops::MoeWeights>(kernels, "MoeWeights", "One mixture-of-experts layer's weights.")
      .def(
          "__init__",
          [](ops::MoeWeights* self, const Matrix& router, const Matrix& shared_router,
             const Matrix& gate, const Matrix& up, const Matrix& down, const Matrix& shared_gate,
             const Matrix& shared_up, const Matrix& shared_down, uint32_t slots) {
            new (self) ops::MoeWeights{router,      shared_router, gate,        up,   down,
                                       shared_gate, shared_up,     shared_down, slots};
          },
          nb::kw_only(), "router"_a, "shared_router"_a, "gate"_a, "up"_a, "down"_a, "shared_gate"_a,
          "shared_up"_a, "shared_down"_a, "slots"_a);
}

void bind_ops(nb::module_& kernels) {
  kernels.def("embed_rows", &ops::embed_rows, "step"_a, "hidden"_a, "ids"_a, "table"_a);
  kernels.def("norm_rms", &ops::norm_rms, "step"_a, "y"_a, "x"_a, "gain"_a, "eps"_a);
  kernels.def("linear", &ops::linear, "step"_a, "y"_a, "x"_a, "segments"_a);
  kernels.def("linear_add", &ops::linear_add, "step"_a, "y"_a, "x"_a, "weight"_a);
  kernels.def("linear_norm", &ops::linear_norm, "step"_a, "y"_a, "x"_a, "gain"_a, "eps"_a,
              "segments"_a);
  kernels.def("rope_append", &ops::rope_append, "step"_a, "q"_a, "layer"_a, "position"_a);
  kernels.def("attention_prefill", &ops::attention_prefill, "step"_a, "y"_a, "q"_a, "layer"_a,
              "position"_a);
  kernels.def("attention_decode", &ops::attention_decode, "step"_a, "partial"_a, "layer"_a,
              "cursor"_a);
  kernels.def("attention_merge", &ops::attention_merge, "step"_a, "y"_a, "partial"_a, "layer"_a,
              "cursor"_a);
  kernels.def("delta_step", &ops::delta_step, "step"_a, "y"_a, "next_state"_a, "layer"_a,
              "cursor"_a);
  kernels.def("delta_conv", &ops::delta_conv, "step"_a, "qkv"_a, "gates"_a, "layer"_a,
              "position"_a);
  kernels.def("delta_chunk", &ops::delta_chunk, "step"_a, "y"_a, "qkv"_a, "gates"_a, "layer"_a);
  kernels.def("sample_logits", &ops::sample_logits, "step"_a, "logits"_a, "blocks"_a, "x"_a,
              "gain"_a, "eps"_a, "lm_head"_a);
  kernels.def("sample_draw", &ops::sample_draw, "step"_a, "result"_a, "blocks"_a, "sampler"_a,
              "cursor"_a, "vocab"_a);
  kernels.def("sample_score", &ops::sample_score, "step"_a, "logprobs"_a, "best"_a, "logits"_a,
              "targets"_a);
}

void bind_encoder_ops(nb::module_& kernels) {
  kernels.def("encoder_embed", &ops::encoder_embed, "step"_a, "y"_a, "hidden"_a, "positions"_a,
              "forms"_a, "position_table"_a, "form_table"_a, "gain"_a, "shift"_a, "eps"_a);
  kernels.def("encoder_norm", &ops::encoder_norm, "step"_a, "y"_a, "hidden"_a, "bias"_a, "gain"_a,
              "shift"_a, "eps"_a);
  kernels.def("encoder_attention", &ops::encoder_attention, "step"_a, "y"_a, "qkv"_a, "bias"_a,
              "offsets"_a, "heads"_a, "longest"_a);
  kernels.def("encoder_gelu", &ops::encoder_gelu, "step"_a, "y"_a, "x"_a, "bias"_a);
  kernels.def("encoder_pool", &ops::encoder_pool, "step"_a, "y"_a, "hidden"_a, "offsets"_a);
}

void bind_moe_ops(nb::module_& kernels) {
  kernels.def("moe_router", &ops::moe_router, "step"_a, "logits"_a, "shared_act"_a, "x"_a, "gain"_a,
              "eps"_a, "moe"_a);
  kernels.def("moe_gate_up", &ops::moe_gate_up, "step"_a, "act"_a, "ids"_a, "weights"_a, "logits"_a,
              "x"_a, "gain"_a, "eps"_a, "moe"_a);
  kernels.def("moe_down", &ops::moe_down, "step"_a, "residual"_a, "act"_a, "shared_act"_a,
              "logits"_a, "ids"_a, "weights"_a, "moe"_a);
  kernels.def("moe_route", &ops::moe_route, "step"_a, "ids"_a, "weights"_a, "logits"_a);
  kernels.def("moe_sort", &ops::moe_sort, "step"_a, "order"_a, "offsets"_a, "ids"_a);
  kernels.def("moe_grouped_gate_up", &ops::moe_grouped_gate_up, "step"_a, "act"_a, "x"_a, "order"_a,
              "offsets"_a, "gate"_a, "up"_a, "slots"_a);
  kernels.def("moe_grouped_down", &ops::moe_grouped_down, "step"_a, "y"_a, "act"_a, "order"_a,
              "offsets"_a, "down"_a);
  kernels.def("moe_combine", &ops::moe_combine, "step"_a, "residual"_a, "y"_a, "shared"_a,
              "weights"_a);
}

}  // namespace

void bind_kernels(nb::module_& module) {
  nb::module_ kernels = module.def_submodule(
      "kernels", "Devices, tensors and single operations, for tests and benchmarks.");
  bind_tensors(kernels);
  bind_device(kernels);
  bind_layers(kernels);
  bind_ops(kernels);
  bind_moe_ops(kernels);
  bind_encoder_ops(kernels);
}

}  // namespace lily
