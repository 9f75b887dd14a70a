#include "moecast/samples.hpp"

#include <algorithm>
#include <array>
#include <variant>

#include "core/document.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;

/// One row per plain field, for reading and writing alike.
template <typename T>
struct Field {
  const char* name;
  std::variant<double T::*, int T::*, std::string T::*> member;
  bool required = false;
};

const std::vector<Field<SampleDevice>>& device_fields() {
  using D = SampleDevice;
  static const std::vector<Field<D>> fields = {
      {"name", &D::name, true},
      {"compute_capability", &D::compute_capability, true},
      {"sms", &D::sms, true},
      {"gpus", &D::gpus},
      {"nvlink_links", &D::nvlink_links},
      {"l2_mib", &D::l2_mib},
      {"memory_gib", &D::memory_gib},
      {"sm_clock_max_mhz", &D::sm_clock_max_mhz},
      {"power_limit_w", &D::power_limit_w},
      {"driver", &D::driver},
      {"cuda", &D::cuda},
      {"cublaslt", &D::cublaslt},
      {"cudnn", &D::cudnn},
      {"nccl", &D::nccl},
      {"date", &D::date},
  };
  return fields;
}

const std::vector<Field<Sample>>& sample_fields() {
  using S = Sample;
  static const std::vector<Field<S>> fields = {
      {"backend", &S::backend},
      {"mode", &S::mode},
      {"n", &S::n},
      {"median_us", &S::median_us, true},
      {"min_us", &S::min_us},
      {"max_us", &S::max_us},
      {"spread_pct", &S::spread_pct},
      {"sm_clock_mhz", &S::sm_clock_mhz},
      {"power_w", &S::power_w},
      {"max_rel_error", &S::max_rel_error},
      {"gpu", &S::gpu},
      {"run", &S::run},
  };
  return fields;
}

template <typename T>
void read_fields(MapReader& reader, const std::vector<Field<T>>& fields, T& out) {
  for (const auto& f : fields) {
    if (f.required && reader.require(f.name) == nullptr) continue;
    if (const auto* number = std::get_if<double T::*>(&f.member)) {
      out.** number = reader.number(f.name, out.**number);
    } else if (const auto* count = std::get_if<int T::*>(&f.member)) {
      out.** count = reader.integer(f.name, out.**count);
    } else {
      auto& text = out.*std::get<std::string T::*>(f.member);
      text = reader.text(f.name, text);
    }
  }
}

template <typename T>
void write_fields(const std::vector<Field<T>>& fields, const T& from, Json& out) {
  const T defaults;
  for (const auto& f : fields) {
    std::visit(
        [&](auto member) {
          if (f.required || from.*member != defaults.*member) out[f.name] = from.*member;
        },
        f.member);
  }
}

/// A number, a word, or a flag (as 0 or 1); other shapes are reported.
void read_key(const Document& doc, const Node::Entry& entry, const std::string& path,
              KernelKeys& out, Diagnostics& problems) {
  if (!entry.value.is_scalar()) {
    problems.push_back(doc.problem(entry.mark, path, "must be a number, a word or a flag"));
  } else if (const auto number = entry.value.as_double()) {
    out[entry.key] = *number;
  } else if (const auto flag = entry.value.as_bool()) {
    out[entry.key] = *flag ? 1.0 : 0.0;
  } else {
    out[entry.key] = entry.value.scalar;
  }
}

Json keys_json(const KernelKeys& keys) {
  Json out = Json::object();
  for (const auto& [name, value] : keys) {
    std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
  }
  return out;
}

SampleDevice read_device(const Document& doc, const Node& node, Diagnostics& problems) {
  SampleDevice device;
  MapReader reader(doc, node, "device", problems);
  read_fields(reader, device_fields(), device);
  for (const auto& entry : node.entries) {
    const auto known = [&](const auto& f) { return entry.key == f.name; };
    if (std::any_of(device_fields().begin(), device_fields().end(), known)) continue;
    reader.ignore(entry.key);
    read_key(doc, entry, "device." + entry.key, device.more, problems);
  }
  reader.finish();
  return device;
}

Sample read_sample(const Document& doc, const Node& node, const std::string& path,
                   Diagnostics& problems) {
  Sample s;
  MapReader reader(doc, node, path, problems);
  s.cls = reader.required_text("class");
  if (const Node* keys = reader.require("keys"); keys != nullptr && keys->is_map()) {
    for (const auto& entry : keys->entries)
      read_key(doc, entry, path + ".keys." + entry.key, s.keys, problems);
  } else if (keys != nullptr) {
    reader.complain(*keys, "keys", "must be a map of the kernel's keys");
  }
  read_fields(reader, sample_fields(), s);
  if (s.mode != "sustained" && s.mode != "burst")
    reader.complain(node, "mode", "is '" + s.mode + "'", "sustained or burst");
  if (s.median_us < 0 || (s.median_us == 0 && s.cls != "memory_overhead"))
    reader.complain(node, "median_us", "must be above 0");
  reader.finish();
  return s;
}

}  // namespace

Result<Samples> read_samples(const std::string& path) {
  auto read = read_document(path);
  if (!read) return read.problems();
  const Document& doc = read.value();
  Diagnostics problems;
  check_schema(doc, "samples", 1, problems);
  Samples out;
  MapReader reader(doc, doc.root, "", problems);
  reader.ignore("schema");
  const Node* device = reader.require("device");
  if (device != nullptr && device->is_map()) {
    out.device = read_device(doc, *device, problems);
  } else if (device != nullptr) {
    reader.complain(*device, "device", "must be a map");
  }
  const Node* list = reader.require("samples");
  if (list != nullptr && !list->is_sequence()) reader.complain(*list, "samples", "must be a list");
  for (std::size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
    const std::string where = "samples[" + std::to_string(i) + "]";
    if (list->items[i].is_map()) {
      out.samples.push_back(read_sample(doc, list->items[i], where, problems));
    } else {
      problems.push_back(doc.problem(list->items[i].mark, where, "must be a map"));
    }
  }
  reader.finish();
  if (!problems.empty()) return problems;
  return out;
}

Diagnostics write_samples(const std::string& path, const Samples& samples) {
  Json device = Json::object();
  write_fields(device_fields(), samples.device, device);
  device.update(keys_json(samples.device.more));
  std::string text =
      "{\"schema\":\"moecast/samples@1\",\n\"device\":" + device.dump() + ",\n\"samples\":[";
  const char* separator = "\n";
  for (const Sample& s : samples.samples) {
    Json one;
    one["class"] = s.cls;
    one["keys"] = keys_json(s.keys);
    write_fields(sample_fields(), s, one);
    text += separator + one.dump();
    separator = ",\n";
  }
  text += "\n]}\n";
  const std::string problem = write_file_atomically(path, text);
  if (problem.empty()) return {};
  return {{path, 0, 0, "", problem, "check that the folder exists and can be written to"}};
}

}  // namespace moecast
