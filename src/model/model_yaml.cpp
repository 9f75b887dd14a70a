#include "model/model_yaml.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <sstream>

#include "model/import_hf.hpp"
#include "model/spec_fields.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

template <typename T>
void read_fields(std::span<const SpecField<T>> fields, MapReader& reader, T& value) {
  for (const SpecField<T>& f : fields) {
    if (f.number != nullptr) value.*f.number = reader.integer(f.key, value.*f.number);
    if (f.flag != nullptr) value.*f.flag = reader.boolean(f.key, value.*f.flag);
  }
}

/// Only what differs from the default.
template <typename T>
void write_fields(std::span<const SpecField<T>> fields, const T& value,
                  nlohmann::ordered_json& json) {
  const T defaults{};
  for (const SpecField<T>& f : fields) {
    const std::string key(f.key);
    if (f.number != nullptr && value.*f.number != defaults.*f.number) json[key] = value.*f.number;
    if (f.flag != nullptr && value.*f.flag != defaults.*f.flag) json[key] = value.*f.flag;
  }
}

/// Distinct and stable: gqa, gqa2, ... in the order of `mixers`.
std::vector<std::string> mixer_names(const ModelSpec& m) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < m.mixers.size(); ++i) {
    const auto same = [&](const Mixer& other) { return other.kind == m.mixers[i].kind; };
    const auto earlier =
        std::count_if(m.mixers.begin(), m.mixers.begin() + static_cast<std::ptrdiff_t>(i), same);
    names.push_back(std::string(mixer_kind_name(m.mixers[i].kind)) +
                    (earlier > 0 ? std::to_string(earlier + 1) : ""));
  }
  return names;
}

std::vector<std::string> layer_tokens(const ModelSpec& m, const std::vector<LayerKind>& layers) {
  const std::vector<std::string> names = mixer_names(m);
  std::vector<std::string> tokens;
  for (const LayerKind& layer : layers) {
    std::string token = layer.mixer > 0 ? names.at(layer.mixer) : "";
    const std::string ffn = layer.ffn == FfnKind::dense ? "dense"
                            : layer.ffn == FfnKind::moe ? "moe"
                                                        : "";
    token += (token.empty() || ffn.empty() ? "" : "+") + ffn;
    tokens.push_back(token.empty() ? "none" : token);
  }
  return tokens;
}

class NativeReader {
 public:
  NativeReader(const Document& doc, Diagnostics& problems) : doc_(doc), problems_(problems) {}

  ModelSpec read() {
    MapReader reader(doc_, doc_.root, "", problems_);
    reader.ignore("schema");
    reader.ignore("source");
    ModelSpec m;
    m.name = reader.required_text("name");
    m.architecture = reader.text("architecture", "megatron");
    read_fields(model_fields(), reader, m);
    if (const Node* node = reader.get("moe")) read_moe(*node, m);
    read_mixers(reader.require("mixers"), m);
    m.layers = read_layers(reader.require("layers"), "layers");
    if (const Node* node = reader.get("mtp_pattern"))
      m.mtp_pattern = read_layers(node, "mtp_pattern");
    read_warnings(reader.get("warnings"), m);
    reader.finish();
    if (m.mtp_num_layers > 0 && m.mtp_pattern.empty() && !m.layers.empty())
      m.mtp_pattern = {m.layers.back()};
    if (m.layers.empty()) complain(doc_.root, "layers", "there must be at least one layer");
    return m;
  }

 private:
  void complain(const Node& at, std::string key, std::string message, std::string hint = "") {
    problems_.push_back(doc_.problem(at.mark, std::move(key), std::move(message), std::move(hint)));
  }

  void read_moe(const Node& node, ModelSpec& m) {
    MapReader reader(doc_, node, "moe", problems_);
    read_fields(moe_fields(), reader, m.moe);
    reader.finish();
  }

  void read_mixers(const Node* node, ModelSpec& m) {
    m.mixers = {Mixer{}};
    names_ = {"none"};
    if (node == nullptr) return;
    if (!node->is_map()) return complain(*node, "mixers", "must be a map from a name to a mixer");
    for (const Node::Entry& e : node->entries) {
      const std::string path = "mixers." + e.key;
      if (e.key == "none" || e.key == "moe" || e.key == "dense" ||
          e.key.find_first_of(" +,") != std::string::npos) {
        complain(e.value, path, "is not a name for a mixer");
      }
      m.mixers.push_back(read_mixer(e.value, path));
      names_.push_back(e.key);
    }
    if (m.mixers.size() > std::numeric_limits<std::uint8_t>::max())
      complain(*node, "mixers", "at most 254 mixers");
  }

  Mixer read_mixer(const Node& node, const std::string& path) {
    MapReader reader(doc_, node, path, problems_);
    Mixer x;
    const std::string kind = reader.required_text("kind");
    const std::vector<std::string> kinds = {"gqa", "mla", "csa", "gdn", "kda", "mamba"};
    const auto at = std::find(kinds.begin(), kinds.end(), kind);
    if (at == kinds.end()) {
      complain(node, path + ".kind", "'" + kind + "' is not a kind of mixer",
               suggestion(kind, kinds));
    } else {
      x.kind = static_cast<MixerKind>(at - kinds.begin() + 1);
    }
    read_fields(mixer_fields(), reader, x);
    reader.finish();
    return x;
  }

  /// "58 x mla+moe", "18 x gqa+moe gqa2+moe", or a token alone.
  std::vector<LayerKind> read_layers(const Node* node, const std::string& key) {
    std::vector<LayerKind> layers;
    if (node == nullptr) return layers;
    if (!node->is_sequence()) {
      complain(*node, key, "must be a list such as [3 x mla+dense, 58 x mla+moe]");
      return layers;
    }
    for (const Node& item : node->items) read_run(item, key, layers);
    return layers;
  }

  void read_run(const Node& item, const std::string& key, std::vector<LayerKind>& layers) {
    std::istringstream words(item.as_string().value_or(""));
    std::vector<std::string> tokens{std::istream_iterator<std::string>(words), {}};
    std::size_t count = 1;
    if (tokens.size() > 1 && tokens[1] == "x") {
      const std::string& number = tokens[0];
      const auto [end, error] =
          std::from_chars(number.data(), number.data() + number.size(), count);
      if (error != std::errc() || end != number.data() + number.size() || count == 0) {
        return complain(item, key, "'" + number + "' is not a number of layers");
      }
      tokens.erase(tokens.begin(), tokens.begin() + 2);
    }
    if (tokens.empty()) return complain(item, key, "is empty", "such as 58 x mla+moe");
    std::vector<LayerKind> period;
    for (const std::string& token : tokens) period.push_back(read_token(item, key, token));
    constexpr std::size_t kMost = kMostModelLayers;
    if (count > kMost || layers.size() + count * period.size() > kMost) {
      return complain(item, key, "more than " + std::to_string(kMostModelLayers) + " layers");
    }
    for (std::size_t i = 0; i < count; ++i)
      layers.insert(layers.end(), period.begin(), period.end());
  }

  LayerKind read_token(const Node& item, const std::string& key, const std::string& token) {
    LayerKind layer;
    std::istringstream parts(token);
    for (std::string part; std::getline(parts, part, '+');) {
      const auto at = std::find(names_.begin(), names_.end(), part);
      if (part == "dense" || part == "moe") {
        layer.ffn = part == "moe" ? FfnKind::moe : FfnKind::dense;
      } else if (at != names_.end()) {
        layer.mixer = static_cast<std::uint8_t>(std::min<std::ptrdiff_t>(at - names_.begin(), 255));
      } else {
        std::vector<std::string> known = names_;
        known.insert(known.end(), {"dense", "moe"});
        complain(item, key, "'" + part + "' is neither a mixer of this file nor dense or moe",
                 suggestion(part, known));
      }
    }
    return layer;
  }

  void read_warnings(const Node* node, ModelSpec& m) {
    if (node == nullptr) return;
    for (const Node& item : node->items) m.warnings.push_back(item.as_string().value_or(""));
  }

  const Document& doc_;
  Diagnostics& problems_;
  std::vector<std::string> names_;
};

/// Where a key is written, for problems found in the finished spec.
Mark find_mark(const Node& node, std::string_view key) {
  for (const Node::Entry& e : node.entries) {
    if (e.key == key) return e.value.mark;
    const Mark inner = find_mark(e.value, key);
    if (inner.line > 0) return inner;
  }
  return {};
}

Result<ModelSpec> read_native(const Document& doc, const nlohmann::ordered_json& overrides) {
  Diagnostics problems;
  check_schema(doc, "model", 1, problems);
  ModelSpec m = NativeReader(doc, problems).read();
  if (problems.empty()) {
    override_spec(m, overrides, problems);
    for (const SpecProblem& p : check_spec(m)) {
      problems.push_back(doc.problem(find_mark(doc.root, p.key), std::string(p.key), p.message));
    }
  }
  if (!problems.empty()) return problems;
  return m;
}

/// Facts as HF writes them; `training` is what recipes train instead of what the checkpoint's
/// config says.
Result<ModelSpec> read_wrapped(Document& doc, const nlohmann::ordered_json& overrides) {
  Diagnostics problems;
  check_schema(doc, "model", 1, problems);
  MapReader reader(doc, doc.root, "", problems);
  reader.ignore("schema");
  reader.ignore("source");
  const std::string name = reader.required_text("name");
  const Node* config = reader.require("hf_config");
  nlohmann::ordered_json changes = nlohmann::ordered_json::object();
  if (const Node* training = reader.get("training")) {
    if (training->is_map()) {
      changes = training->to_json();
    } else {
      reader.complain(*training, "training", "must be a map of HF keys");
    }
  }
  reader.finish();
  if (!problems.empty()) return problems;
  Node root = *config;
  if (!root.is_map()) return doc.problem(root.mark, "hf_config", "must be a map of HF keys");
  apply_hf_overrides(root, changes, problems);
  apply_hf_overrides(root, overrides, problems);
  if (!problems.empty()) return problems;
  std::vector<std::string> keys;
  for (const auto& [key, value] : overrides.items()) keys.push_back(key);
  return import_hf(doc, root, name, keys);
}

}  // namespace

Result<ModelSpec> read_model_yaml(Document doc, const nlohmann::ordered_json& overrides) {
  if (doc.root.is_map() && doc.root.find("hf_config") != nullptr)
    return read_wrapped(doc, overrides);
  return read_native(doc, overrides);
}

nlohmann::ordered_json model_to_json(const ModelSpec& m) {
  nlohmann::ordered_json json;
  json["schema"] = "moecast/model@1";
  json["name"] = m.name;
  json["architecture"] = m.architecture;
  write_fields(model_fields(), m, json);
  if (m.moe.num_moe_experts > 0) write_fields(moe_fields(), m.moe, json["moe"]);
  const std::vector<std::string> names = mixer_names(m);
  json["mixers"] = nlohmann::ordered_json::object();
  for (std::size_t i = 1; i < m.mixers.size(); ++i) {
    nlohmann::ordered_json mixer;
    mixer["kind"] = mixer_kind_name(m.mixers[i].kind);
    write_fields(mixer_fields(), m.mixers[i], mixer);
    json["mixers"][names[i]] = mixer;
  }
  json["layers"] = layer_runs(layer_tokens(m, m.layers));
  if (!m.mtp_pattern.empty()) json["mtp_pattern"] = layer_runs(layer_tokens(m, m.mtp_pattern));
  if (!m.warnings.empty()) json["warnings"] = m.warnings;
  return json;
}

}  // namespace moecast
