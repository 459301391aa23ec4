// Any bytes as config.json: a JsonError, a list of problems, or a Config whose promises hold.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "model/config.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every value again through the index that find() uses.
void check_lookup(const lily::Json& json) {
  require(!json.describe().empty());
  if (json.is_array()) {
    for (const lily::Json& item : json.items()) check_lookup(item);
  }
  if (!json.is_object()) return;
  for (const lily::Json::Member& member : json.members()) {
    require(json.find(member.name) == &member.value);
    check_lookup(member.value);
  }
}

void check(const lily::Config& c) {
  require(c.num_layers >= 1 && c.layers.size() == c.num_layers);
  require(c.hidden >= 1 && c.vocab >= 1 && c.max_positions >= 1);
  require(c.kv_heads >= 1 && c.q_heads % c.kv_heads == 0 && c.q_heads >= c.kv_heads);
  require(c.rotary_dims >= 2 && c.rotary_dims % 2 == 0 && c.rotary_dims <= c.head_dim);
  require(c.rope_theta > 0 && c.rms_eps > 0);
  require(c.delta_key_heads >= 1 && c.delta_value_heads % c.delta_key_heads == 0);
  require(c.conv_width == 4 && c.experts_per_token >= 1);
  require(c.experts_per_token <= c.experts && c.experts_per_token <= 16);
  for (const uint32_t id : c.eos_ids) require(id < c.vocab);
  // The largest product that later code forms: the bytes of all experts, in 64 bits.
  const uint64_t expert = 3ull * c.hidden * c.expert_width;
  require(expert <= UINT64_MAX / 4 / c.num_layers / c.experts);
  const lily::Quantisation& q = c.quantisation;
  require(!q.present || ((q.standard.bits == 4 || q.standard.bits == 8) && q.standard.group >= 32));
  for (const auto& [name, format] : q.overrides) require(q.format_of(name) == format);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const lily::Json json = lily::Json::parse(text);
    check_lookup(json);
    std::vector<std::string> problems;
    const lily::Config config = lily::Config::parse(json, problems);
    if (problems.empty()) check(config);
  } catch (const lily::JsonError& error) {
    require(error.line() >= 1 && error.column() >= 1);
  }
  require(!lily::printable(text).empty());
  return 0;
}
