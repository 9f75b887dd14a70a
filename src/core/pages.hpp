#pragma once
/// Large pages for arrays of tens of megabytes that are written once from end to end: mapping them
/// 4 KiB at a time takes longer than writing them.
#include <cstdint>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace moecast {

/// Asks for them for what a vector has reserved. A hint: nothing happens where there are none.
template <typename T>
void ask_large_pages(const std::vector<T>& reserved) {
#ifdef __linux__
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved.data());
  const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage,
                       last = (begin + reserved.capacity() * sizeof(T)) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)reserved;
#endif
}

}  // namespace moecast
