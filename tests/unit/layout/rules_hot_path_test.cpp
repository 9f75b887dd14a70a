#include <atomic>
#include <cstdlib>
#include <new>

#include "catch.hpp"
#include "layout/rules.hpp"
#include "rules_fixture.hpp"

namespace {
std::atomic<long> g_allocations{0};
}

void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("Checking a candidate allocates nothing, legal or not") {
  using namespace moecast;
  using namespace moecast::test;
  Candidate legal = deepseek_v4_flash_on_160_b200();
  legal.layout.pipeline_split = PipelineSplit::automatic;
  CHECK(first_broken_rule(legal.input()) == -1);  // builds the table
  for (const RuleCase& c : rule_cases()) {
    Candidate bad;  // what the cases break
    c.breaks(bad);
    if (bad.layout.pipeline_split == PipelineSplit::explicit_string) continue;
    Checkable& subject = bad.subject();
    MegatronKnobs knobs = subject.asked();
    const long before = g_allocations;
    set_layout(knobs, bad.layout);
    subject.ask(knobs);
    first_broken_rule(subject.input());
    const long after = g_allocations;
    INFO(c.id);
    CHECK(after == before);
  }
}
