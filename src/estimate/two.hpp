#pragma once
/// Two doubles in a register: what is computed for many layouts alike is computed for two at a
/// time.
#include <cstring>

namespace moecast {

using Two = double __attribute__((vector_size(16)));

inline Two load_two(const double* from) {
  Two both;
  std::memcpy(&both, from, sizeof both);
  return both;
}
inline void store_two(double* to, Two both) { std::memcpy(to, &both, sizeof both); }
inline Two most_of(Two a, Two b) { return a < b ? b : a; }

}  // namespace moecast
