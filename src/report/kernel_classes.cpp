/// Kernel-class times of profiled steps against the forecast's. A profile's classes are finer than
/// the forecast's, so each comparison sums what belongs together.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "core/csv.hpp"
#include "report/rows.hpp"
#include "report/validation_summary.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;
using Record = std::map<std::string, std::string>;

struct KernelClass {
  const char* name;
  std::vector<const char*> forecast;  ///< keys of ValidatedRow::kernels, seconds
  std::vector<const char*> measured;  ///< columns, milliseconds
  bool least_rank;  ///< communication kernels wait for each other: the rank that waits least
};

/// What runs on the GPU besides communication; copies and casts are streaming kernels like any
/// other.
const std::vector<KernelClass>& kernel_classes() {
  static const std::vector<const char*> streaming = {
      "k_elementwise_ms", "k_triton_ms", "k_norm_ms",   "k_reduce_ms", "k_softmax_ms",
      "k_wgrad_acc_ms",   "k_adam_ms",   "k_memset_ms", "k_copy_ms",   "k_other_ms"};
  static const std::vector<KernelClass> classes = [] {
    std::vector<KernelClass> list = {
        {"dense_gemm", {"dense_gemm_s"}, {"k_gemm_ms"}, false},
        {"grouped_gemm", {"grouped_gemm_s"}, {"k_grouped_gemm_ms"}, false},
        {"attention", {"attention_s"}, {"k_attn_ms"}, false},
        {"permute", {"permute_s"}, {"k_index_ms", "k_sort_topk_ms"}, false},
        {"memory_bound", {"memory_bound_s", "optimizer_s"}, streaming, false},
        {"communication", {"comm_s"}, {"k_comm_ms"}, true}};
    KernelClass busy{"busy_without_communication", {}, {}, false};
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      busy.forecast.insert(busy.forecast.end(), list[i].forecast.begin(), list[i].forecast.end());
      busy.measured.insert(busy.measured.end(), list[i].measured.begin(), list[i].measured.end());
    }
    list.push_back(busy);
    return list;
  }();
  return classes;
}

double sum_ms(const Record& record, const std::vector<const char*>& columns) {
  double sum = 0;
  for (const char* column : columns) {
    const auto cell = record.find(column);
    if (cell != record.end()) sum += rows::number(cell->second).value_or(0);
  }
  return sum;
}

/// The rank whose kernels take longest is the one that the step waits for.
double measured_ms(const std::vector<Record>& ranks, const KernelClass& c) {
  std::vector<double> sums;
  for (const Record& rank : ranks) sums.push_back(sum_ms(rank, c.measured));
  return c.least_rank ? *std::min_element(sums.begin(), sums.end())
                      : *std::max_element(sums.begin(), sums.end());
}

}  // namespace

Result<Json> compare_kernel_classes(const std::string& path,
                                    const std::vector<ValidatedRow>& validated) {
  const auto table = read_csv(path, {"id"});
  if (!table) return table.problems();
  std::map<std::string, std::vector<Record>> by_id;
  for (const CsvRow& row : table.value().rows) {
    Record record;
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      record[table.value().header[i]] = row.cells[i];
    by_id[record.at("id")].push_back(std::move(record));
  }
  Json out = Json::object();
  for (const KernelClass& c : kernel_classes()) {
    Errors errors;
    for (const ValidatedRow& row : validated) {
      const auto ranks = by_id.find(row.id);
      if (ranks == by_id.end() || row.kernels.empty()) continue;
      double forecast = 0;
      for (const char* key : c.forecast) forecast += row.kernels.at(key);
      const double measured = measured_ms(ranks->second, c) * 1e-3;
      // a dense model has no experts to permute rows for: its few index kernels are its embedding's
      if (measured > 0 && forecast > 0) errors.add(measured, error_pct(forecast, measured));
    }
    out[c.name] = errors.summary();
  }
  return out;
}

}  // namespace moecast
