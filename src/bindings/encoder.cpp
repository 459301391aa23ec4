// The gate's encoder for Python: NumPy in, NumPy out, the GIL released while it computes. No
// arithmetic and no policy.
#include "model/encoder.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/numpy.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lily {
namespace {

using Integers = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<Encoder> load(const std::string& folder, const std::string& device,
                              uint32_t threads) {
  const nb::gil_scoped_release released;
  return Encoder::load(folder, device, threads);
}

nb::object run(Encoder& encoder, const Integers& ids, const Integers& forms,
               const Integers& lengths) {
  Encoder::Logits logits;
  {
    const nb::gil_scoped_release released;
    logits = encoder.run({ids.data(), ids.size()}, {forms.data(), forms.size()},
                         {lengths.data(), lengths.size()});
  }
  const EncoderConfig& config = encoder.config();
  return nb::make_tuple(
      to_numpy(std::move(logits.tokens), {ids.size(), config.token_outputs}),
      to_numpy(std::move(logits.documents), {lengths.size(), config.document_outputs}));
}

}  // namespace

void bind_encoder(nb::module_& module) {
  nb::class_<Encoder>(module, "Encoder",
                      "The privacy gate's encoder. Any thread may run it; callers take turns.")
      .def(nb::new_(&load), "folder"_a, nb::kw_only(), "device"_a = "cpu", "threads"_a = 0,
           "Reads config.json and maps model.safetensors; raises ModelError for what is not sound. "
           "threads 0: all.")
      .def_prop_ro("device", [](const Encoder& self) { return std::string(self.device().name()); })
      .def_prop_ro("device_description",
                   [](const Encoder& self) { return self.device().description(); })
      .def_prop_ro("window_tokens", [](const Encoder& self) { return self.config().window_tokens; })
      .def("run", &run, "ids"_a, "forms"_a, "lengths"_a,
           nb::sig("def run(self, ids: numpy.typing.NDArray[numpy.uint32], "
                   "forms: numpy.typing.NDArray[numpy.uint32], "
                   "lengths: numpy.typing.NDArray[numpy.uint32]) -> "
                   "tuple[numpy.typing.NDArray[numpy.float32], "
                   "numpy.typing.NDArray[numpy.float32]]"),
           "Windows of `lengths` rows each, one behind the other, in ids and forms: (logits of "
           "tokens [rows, 1 + 4 * labels], logits of windows [windows, topics + subjects]).");
}

}  // namespace lily
