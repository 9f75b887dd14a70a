#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/document.hpp"

using namespace moecast;

namespace {

/// Slow twin: the edit distance by its recursive definition.
std::size_t distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  std::size_t best = std::min(distance(a.substr(1), b), distance(a, b.substr(1))) + 1;
  best = std::min(best, distance(a.substr(1), b.substr(1)) + (a[0] == b[0] ? 0 : 1));
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]) {
    best = std::min(best, distance(a.substr(2), b.substr(2)) + 1);
  }
  return best;
}

}  // namespace

TEST_CASE("The nearest name is the one a typist meant") {
  const std::vector<std::string> names = {"tensor_model_parallel_size",
                                          "pipeline_model_parallel_size",
                                          "seq_length",
                                          "micro_batch_size",
                                          "hybridep",
                                          "mxfp8"};
  CHECK(nearest_name("tensor_paralel_size", names) == "tensor_model_parallel_size");
  CHECK(nearest_name("sequence_length", names) == "seq_length");
  CHECK(nearest_name("esq_length", names) == "seq_length");
  CHECK(nearest_name("micro-batch-size", names) == "micro_batch_size");
  CHECK(nearest_name("MXFP8", names) == "mxfp8");
  CHECK(nearest_name("hybridpe", names) == "hybridep");
  CHECK(nearest_name("colour", names).empty());
  CHECK(nearest_name("xy", {"tp", "pp"}).empty());
  CHECK(nearest_name("tq", {"pp", "tp"}) == "tp");
  CHECK(nearest_name("", names).empty());
  CHECK(nearest_name("tp", {}).empty());
}

TEST_CASE("The nearest name agrees with the recursive edit distance") {
  std::mt19937 random(20240517);
  const auto word = [&] {
    std::string out(1 + random() % 6, 'a');
    for (char& c : out) c = static_cast<char>('a' + random() % 3);
    return out;
  };
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string wanted = word();
    const std::vector<std::string> names = {word(), word(), word()};
    std::string best;
    std::size_t least = 3;  // words of up to 6 letters: the limit is 2
    for (const std::string& name : names) {
      const std::size_t d = distance(wanted, name);
      if (d < least && d < std::max(wanted.size(), name.size())) {
        least = d;
        best = name;
      }
    }
    INFO(wanted << " in " << names[0] << " " << names[1] << " " << names[2]);
    CHECK(nearest_name(wanted, names) == best);
    found += best.empty() ? 0 : 1;
  }
  CHECK(found > 100);
}

TEST_CASE("A suggestion names the nearest word, else the choices when they are few") {
  CHECK(suggestion("bf61", {"bf16", "mxfp8"}) == "did you mean 'bf16'?");
  CHECK(suggestion("int8", {"bf16", "mxfp8"}) == "one of bf16, mxfp8");
  CHECK(suggestion("zzzz", std::vector<std::string>(11, "word")).empty());
  CHECK(suggestion("zzzz", {}).empty());
}
