#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "catch.hpp"
#include "core/document.hpp"
#include "model/import_hf.hpp"
#include "moecast/model_io.hpp"

namespace moecast::test {

inline std::string all(const Diagnostics& problems) {
  std::string text;
  for (const Diagnostic& d : problems) text += to_string(d) + "\n";
  return text;
}

inline ModelSpec load(const std::string& name,
                      const nlohmann::ordered_json& overrides = nlohmann::ordered_json::object()) {
  Result<ModelSpec> r = load_model(name, overrides, MOECAST_TEST_DIR "/unit/model/data");
  INFO(name << "\n" << all(r.problems()));
  REQUIRE(r.ok());
  return r.take();
}

inline Result<ModelSpec> import_text(const std::string& json) {
  Result<Document> doc = parse_document(json, "config.json");
  INFO(json << all(doc.problems()));
  REQUIRE(doc.ok());
  return import_hf(doc.value(), doc.value().root, "test", {});
}

inline ModelSpec import_ok(const std::string& json) {
  Result<ModelSpec> r = import_text(json);
  INFO(json << "\n" << all(r.problems()));
  REQUIRE(r.ok());
  return r.take();
}

}  // namespace moecast::test
