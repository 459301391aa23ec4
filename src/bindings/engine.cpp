// Engine and sessions for Python: arguments in, NumPy out, the GIL released while anything
// computes, and Ctrl-C looked for between chunks. No arithmetic and no policy.
#include "engine/engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/numpy.h"
#include "core/error.h"
#include "model/describe.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lily {
namespace {

using Tokens = std::vector<uint32_t>;
using Released = nb::call_guard<nb::gil_scoped_release>;

[[noreturn]] void refuse_token(const char* what, size_t index, nb::handle item) {
  throw InvalidInput(std::string(what) + " " + std::to_string(index) + " is " +
                     nb::repr(item).c_str() + ", expected an integer from 0 to 4,294,967,295");
}

// Any sequence of integers; NumPy's own integers have __index__, too.
Tokens to_integers(nb::handle sequence, const char* what) {
  if (nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> array;
      nb::try_cast(sequence, array, false)) {
    return Tokens(array.data(), array.data() + array.size());
  }
  Tokens tokens;
  for (const nb::handle item : sequence) {
    const auto index = nb::steal<nb::object>(PyNumber_Index(item.ptr()));
    if (!index.is_valid()) {
      PyErr_Clear();
      refuse_token(what, tokens.size(), item);
    }
    const unsigned long long value = PyLong_AsUnsignedLongLong(index.ptr());
    if (PyErr_Occurred() != nullptr || value > UINT32_MAX) {
      PyErr_Clear();
      refuse_token(what, tokens.size(), item);
    }
    tokens.push_back(static_cast<uint32_t>(value));
  }
  return tokens;
}

// Runs on the computing thread, which holds no GIL. Signals reach only the main thread's check.
void check_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// `progress` outlives the call that uses the options: it is an argument of it.
CallOptions make_options(const Cancel* cancel, const nb::object& progress) {
  CallOptions options;
  options.cancel = cancel;
  options.poll = check_signals;
  if (!progress.is_none()) {
    options.progress = [&progress](uint32_t done, uint32_t total) {
      const nb::gil_scoped_acquire gil;
      progress(done, total);
    };
  }
  return options;
}

uint32_t prefill(Session& session, nb::handle tokens, nb::handle checkpoints, const Cancel* cancel,
                 const nb::object& progress) {
  const Tokens prompt = to_integers(tokens, "prefill: token");
  CallOptions options = make_options(cancel, progress);
  options.checkpoints = to_integers(checkpoints, "prefill: checkpoint");
  const nb::gil_scoped_release released;
  return session.prefill(prompt, options);
}

nb::object score(Session& session, nb::handle tokens, const Cancel* cancel) {
  const Tokens text = to_integers(tokens, "score: token");
  const CallOptions options = make_options(cancel, nb::none());
  Scores scores;
  {
    const nb::gil_scoped_release released;
    scores = session.score(text, options);
  }
  return nb::make_tuple(to_numpy(std::move(scores.logprobs)), to_numpy(std::move(scores.best)));
}

nb::object all_logits(Session& session, nb::handle tokens) {
  const Tokens text = to_integers(tokens, "all_logits: token");
  const CallOptions options = make_options(nullptr, nb::none());
  std::vector<float> logits;
  {
    const nb::gil_scoped_release released;
    logits = session.all_logits(text, options);
  }
  const size_t rows = text.size(), vocab = logits.size() / rows;
  return to_numpy(std::move(logits), {rows, vocab});
}

nb::object logits(Session& session) {
  std::vector<float> row;
  {
    const nb::gil_scoped_release released;
    row = session.logits();
  }
  return to_numpy(std::move(row));
}

nb::object candidates(Session& session) {
  Candidates best;
  {
    const nb::gil_scoped_release released;
    best = session.candidates();
  }
  return nb::make_tuple(to_numpy(std::move(best.ids)), to_numpy(std::move(best.logits)));
}

void set_sampler(Session& session, float temperature, uint32_t top_k, float top_p, float min_p,
                 uint64_t seed) {
  const nb::gil_scoped_release released;
  session.set_sampler({temperature, top_k, top_p, min_p, seed});
}

nb::dict to_dict(const MemoryPlan& plan) {
  nb::dict dict;
  dict["weights_bytes"] = plan.weights_bytes;
  dict["kv_bytes"] = plan.kv_bytes;
  dict["state_bytes"] = plan.state_bytes;
  dict["scratch_bytes"] = plan.scratch_bytes;
  dict["cache_bytes"] = plan.cache_bytes;
  dict["total_bytes"] = plan.total_bytes;
  dict["limit_bytes"] = plan.limit_bytes;
  dict["max_context"] = plan.max_context;
  return dict;
}

nb::dict cache_stats(const Engine& engine) {
  PrefixCache::Stats stats;
  {
    const nb::gil_scoped_release released;  // the cache may be copying a snapshot
    stats = engine.cache_stats();
  }
  nb::dict dict;
  dict["snapshots"] = stats.snapshots;
  dict["bytes"] = stats.bytes;
  dict["hits"] = stats.hits;
  dict["misses"] = stats.misses;
  dict["evictions"] = stats.evictions;
  return dict;
}

nb::dict to_dict(const Config& config) {
  nb::dict dict;
  dict["hidden"] = config.hidden;
  dict["layers"] = config.num_layers;
  dict["attention_layers"] = config.attention_layers();
  dict["delta_layers"] = config.delta_layers();
  dict["q_heads"] = config.q_heads;
  dict["kv_heads"] = config.kv_heads;
  dict["head_dim"] = config.head_dim;
  dict["rotary_dims"] = config.rotary_dims;
  dict["rope_theta"] = config.rope_theta;
  dict["delta_key_heads"] = config.delta_key_heads;
  dict["delta_value_heads"] = config.delta_value_heads;
  dict["delta_key_dim"] = config.delta_key_dim;
  dict["delta_value_dim"] = config.delta_value_dim;
  dict["experts"] = config.experts;
  dict["experts_per_token"] = config.experts_per_token;
  dict["expert_width"] = config.expert_width;
  dict["shared_width"] = config.shared_width;
  dict["vocab"] = config.vocab;
  dict["max_positions"] = config.max_positions;
  dict["rms_eps"] = config.rms_eps;
  dict["tie_word_embeddings"] = config.tie_word_embeddings;
  dict["mtp_layers"] = config.mtp_layers;
  dict["eos_ids"] = nb::cast(config.eos_ids);
  return dict;
}

nb::dict describe_folder(const std::string& path) {
  Description found;
  {
    const nb::gil_scoped_release released;
    found = describe(path);
  }
  const WeightsReport weights = found.weights.value_or(WeightsReport{});
  nb::dict dict;
  dict["architecture"] = found.config ? "qwen3_5_moe" : "unknown";
  dict["layout"] = layout_name(weights.layout);
  dict["config"] = found.config ? to_dict(*found.config) : nb::dict();
  dict["formats"] = nb::cast(weights.format_bytes);
  dict["parameters"] = weights.parameters;
  dict["active_parameters"] = weights.active_parameters;
  uint64_t bytes = 0;
  for (const auto& [format, size] : weights.format_bytes) bytes += size;
  dict["weights_bytes"] = bytes;
  dict["unused"] = nb::cast(weights.unused);
  dict["kv_bytes_per_token"] = found.kv_bytes_per_token;
  dict["state_bytes"] = found.state_bytes;
  dict["problems"] = nb::cast(found.problems);
  return dict;
}

std::shared_ptr<Engine> load(const std::string& path, const std::string& device,
                             uint32_t max_context, const std::string& kv_dtype, int64_t cache_bytes,
                             uint64_t memory_limit_bytes, uint32_t threads, uint32_t chunk_tokens) {
  const nb::gil_scoped_release released;
  return Engine::load(path, {device, kv_dtype, max_context, cache_bytes, memory_limit_bytes,
                             threads, chunk_tokens});
}

nb::dict plan(const std::string& path, const std::string& device, uint32_t max_context,
              const std::string& kv_dtype, int64_t cache_bytes, uint64_t memory_limit_bytes) {
  MemoryPlan result;
  {
    const nb::gil_scoped_release released;
    result =
        plan_memory(path, {device, kv_dtype, max_context, cache_bytes, memory_limit_bytes, 0, 0});
  }
  return to_dict(result);
}

void bind_values(nb::module_& module) {
  nb::class_<Cancel>(module, "Cancel",
                     "A flag that any thread may set; the running call that was given it stops "
                     "within one step or chunk.")
      .def(nb::init<>())
      .def("set", &Cancel::set)
      .def("clear", &Cancel::clear)
      .def_prop_ro("is_set", &Cancel::is_set);
  nb::class_<Draw>(
      module, "Sampled",
      "What the device proposes for the next position, from the logits that are ready.")
      .def_ro("token_id", &Draw::token_id)
      .def_ro("exact", &Draw::exact,
              "False: the filters reach past the 64 candidates; draw from the full row.")
      .def_ro("logsumexp", &Draw::logsumexp, "Of the raw row, at temperature 1.");
}

void bind_session(nb::module_& module) {
  nb::class_<Session>(module, "Session",
                      "One timeline of tokens with its KV cache and recurrent state. One thread at "
                      "a time.")
      .def_prop_ro("tokens", &Session::tokens, "Everything accepted so far.")
      .def_prop_ro("num_tokens", &Session::num_tokens)
      .def_prop_ro("max_tokens", &Session::max_tokens)
      .def("set_sampler", &set_sampler, nb::kw_only(), "temperature"_a, "top_k"_a, "top_p"_a,
           "min_p"_a, "seed"_a,
           "temperature 0: greedy; top_k 0, top_p 1 and min_p 0 turn the filters off.")
      .def("prefill", &prefill, "tokens"_a, nb::kw_only(), "checkpoints"_a = nb::make_tuple(),
           "cancel"_a = nb::none(), "progress"_a = nb::none(),
           nb::sig("def prefill(self, tokens: collections.abc.Sequence[int] | "
                   "numpy.typing.NDArray[numpy.uint32], *, "
                   "checkpoints: collections.abc.Sequence[int] = (), "
                   "cancel: Cancel | None = None, "
                   "progress: collections.abc.Callable[[int, int], None] | None = None) -> int"),
           "Makes `tokens`, the whole wanted prompt, the session's timeline, and its last logits "
           "ready. Returns how many tokens were reused.")
      .def("sampled", &Session::sampled, Released(),
           "Draws with the present sampler from the logits that are ready.")
      .def("step", &Session::step, "token_id"_a, nb::kw_only(), "cancel"_a = nb::none(), Released(),
           "Accepts token_id, runs one decode step, and draws.")
      .def("logits", &logits, nb::sig("def logits(self) -> numpy.typing.NDArray[numpy.float32]"),
           "A copy of the whole row, [vocab].")
      .def("candidates", &candidates,
           nb::sig("def candidates(self) -> tuple[numpy.typing.NDArray[numpy.uint32], "
                   "numpy.typing.NDArray[numpy.float32]]"),
           "Ids and logits, up to 64, best first; ties: lower id first.")
      .def("score", &score, "tokens"_a, nb::kw_only(), "cancel"_a = nb::none(),
           nb::sig("def score(self, tokens: collections.abc.Sequence[int] | "
                   "numpy.typing.NDArray[numpy.uint32], *, cancel: Cancel | None = None) -> "
                   "tuple[numpy.typing.NDArray[numpy.float32], "
                   "numpy.typing.NDArray[numpy.uint32]]"),
           "Fresh pass over tokens: (log-probability of tokens[1:], the arg-max prediction at each "
           "of those places). The tokens become the timeline.")
      .def("all_logits", &all_logits, "tokens"_a,
           nb::sig("def all_logits(self, tokens: collections.abc.Sequence[int] | "
                   "numpy.typing.NDArray[numpy.uint32]) -> numpy.typing.NDArray[numpy.float32]"),
           "[n, vocab]. The tokens become the timeline.")
      .def("save", &Session::save, Released(),
           "Keeps a snapshot of the present place in the engine's prefix cache.")
      .def("close", &Session::close, Released());
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_values(module);
  bind_session(module);
  nb::class_<Engine>(module, "Engine", "A loaded model and the sessions on it.")
      .def(nb::new_(&load), "path"_a, nb::kw_only(), "device"_a = "auto", "max_context"_a = 0,
           "kv_dtype"_a = "auto", "cache_bytes"_a = -1, "memory_limit_bytes"_a = 0, "threads"_a = 0,
           "chunk_tokens"_a = 0,
           "max_context 0: chosen from config and memory; cache_bytes -1: chosen; "
           "memory_limit_bytes 0: what the machine has; threads 0: all; chunk_tokens 0: chosen.")
      .def_prop_ro("device", &Engine::device_name)
      .def_prop_ro("device_description", &Engine::device_description)
      .def_prop_ro("vocab_size", &Engine::vocab_size, "Rows of lm_head.")
      .def_prop_ro("max_context", [](const Engine& self) { return self.plan().max_context; })
      .def(
          "plan", [](const Engine& self) { return to_dict(self.plan()); },
          nb::sig("def plan(self) -> dict[str, int]"))
      .def("cache_stats", &cache_stats, nb::sig("def cache_stats(self) -> dict[str, int]"))
      .def("session", &Engine::open_session, "max_tokens"_a = 0, Released(),
           "max_tokens 0: the engine's max_context.")
      .def("close", &Engine::close, Released(),
           "From any thread; running calls end after their chunk, later ones raise InvalidInput.");
  module.def(
      "describe", &describe_folder, "path"_a,
      nb::sig("def describe(path: str) -> dict[str, object]"),
      "What a folder holds and what would be refused; reads config and tensor headers only.");
  module.def("plan", &plan, "path"_a, nb::kw_only(), "device"_a = "auto", "max_context"_a = 0,
             "kv_dtype"_a = "auto", "cache_bytes"_a = -1, "memory_limit_bytes"_a = 0,
             nb::sig("def plan(path: str, *, device: str = 'auto', max_context: int = 0, "
                     "kv_dtype: str = 'auto', cache_bytes: int = -1, "
                     "memory_limit_bytes: int = 0) -> dict[str, int]"),
             "The memory that loading would plan; raises what it would raise.");
}

}  // namespace lily
