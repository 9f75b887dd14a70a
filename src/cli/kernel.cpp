#include <fmt/format.h>

#include <memory>

#include "cli/command.hpp"
#include "core/csv.hpp"
#include "core/document.hpp"
#include "moecast/kernel.hpp"
#include "report/table.hpp"
#include "topology/profile.hpp"

namespace moecast::cli {
namespace {

struct KernelArgs {
  std::vector<std::string> words;  ///< class, then key=value
  std::string system, csv;
  Output output;
};

struct Place {
  System system;
  Profile profile;
};

Result<Place> load_place(const std::string& name) {
  auto system = load_system(name);
  if (!system) return system.problems();
  auto profile = profile_for(name, system.value());
  if (!profile) return profile.problems();
  return Place{system.take(), profile.take()};
}

/// key=value words; every one that is not is reported.
KernelKeys read_words(const std::vector<std::string>& words, Diagnostics& problems) {
  KernelKeys keys;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == words[i].size()) {
      problems.push_back(usage(words[i], "is not key=value", "such as m=4096"));
    } else if (!keys.emplace(words[i].substr(0, equals), key_value(words[i].substr(equals + 1)))
                    .second) {
      problems.push_back(usage(words[i], "is given twice", ""));
    }
  }
  return keys;
}

Json price_json(const std::string& cls, const KernelKeys& keys, const KernelPrice& price) {
  Json out{{"schema", "moecast/kernel@1"}, {"class", cls}};
  Json& echo = out["keys"] = Json::object();
  for (const auto& [name, value] : keys)
    std::visit([&, &key = name](const auto& v) { echo[key] = v; }, value);
  out["time_us"] = in_us(price.time);
  out["tflops"] = price.tflops > 0 ? Json(price.tflops) : Json(nullptr);
  out["gb_per_s"] = price.gb_per_s;
  out["fraction_of_limit"] = price.fraction_of_limit;
  out["limit"] = price.limit;
  out["source"] = price.source;
  return out;
}

std::string price_text(const std::string& cls, const KernelPrice& price, const Style& style) {
  std::string text = fmt::format("  {}  {:.2f} us", style.bold(cls), in_us(price.time));
  if (price.tflops > 0) text += fmt::format("  {:.0f} TFLOPS", price.tflops);
  text += fmt::format("  {:.0f} GB/s  {:.0f} % of {}\n", price.gb_per_s,
                      100 * price.fraction_of_limit, price.limit);
  return text + "  " + style.dim(wrapped(price.source, 96, 2)) + "\n";
}

int run_one(const KernelArgs& args, const Place& place) {
  Diagnostics problems;
  const std::string& cls = args.words.front();
  const KernelKeys keys = read_words(args.words, problems);
  const auto call = KernelCall::make(cls, keys, place.system);
  problems.insert(problems.end(), call.problems().begin(), call.problems().end());
  for (Diagnostic& p : problems)
    if (p.file.empty()) p.file = "command line";
  if (!problems.empty()) return fail(problems, args.output.json);
  const KernelPrice price = call.value().price(place.profile, place.system);
  return deliver(args.output, kSuccess, price_json(cls, keys, price),
                 [&](const Style& style) { return price_text(cls, price, style); });
}

/// The columns that are keys of the row's class and not empty; others are only carried through.
KernelKeys keys_of_row(const CsvTable& table, const CsvRow& row, const std::string& cls) {
  KernelKeys keys;
  for (const KernelClassInfo& info : kernel_classes()) {
    if (info.name != cls) continue;
    for (const auto* names : {&info.required, &info.optional}) {
      for (const std::string& name : *names) {
        const int column = table.column(name);
        if (column >= 0 && !row.cells[static_cast<std::size_t>(column)].empty())
          keys[name] = key_value(row.cells[static_cast<std::size_t>(column)]);
      }
    }
  }
  return keys;
}

int run_csv(const KernelArgs& args, const Place& place) {
  const auto table = read_csv(args.csv, {"class"});
  if (!table) return fail(table.problems(), args.output.json);
  const CsvTable& t = table.value();
  const auto cls_column = static_cast<std::size_t>(t.column("class"));
  Diagnostics problems;
  Json rows = Json::array();
  std::string text;
  for (const CsvRow& row : t.rows) {
    const std::string& cls = row.cells[cls_column];
    const auto call = KernelCall::make(cls, keys_of_row(t, row, cls), place.system);
    for (Diagnostic p : call.problems()) {
      p.file = t.file;
      p.line = row.line;
      problems.push_back(p);
    }
    if (!call) continue;
    const KernelPrice price = call.value().price(place.profile, place.system);
    Json& out = rows.emplace_back(Json::object());
    for (std::size_t i = 0; i < t.header.size(); ++i) out[t.header[i]] = row.cells[i];
    out["predicted_time_us"] = in_us(price.time);
    out["fraction_of_limit"] = price.fraction_of_limit;
    std::vector<std::string> cells = row.cells;
    cells.push_back(fmt::format("{:.4g}", in_us(price.time)));
    text += to_csv_line(cells);
  }
  if (!problems.empty()) return fail(problems, args.output.json);
  std::vector<std::string> header = t.header;
  header.emplace_back("predicted_time_us");
  return deliver(args.output, kSuccess, Json{{"schema", "moecast/kernel@1"}, {"rows", rows}},
                 [&](const Style&) { return to_csv_line(header) + text; });
}

int run_kernel(const KernelArgs& args) {
  if (args.words.empty() == args.csv.empty()) {
    return fail(
        {usage("CLASS",
               args.words.empty() ? "no kernel is named"
                                  : "and --csv exclude "
                                    "each other",
               "moecast kernel gemm m=4096 n=5120 k=2048 --system dgx-h200, or --csv FILE")},
        args.output.json);
  }
  const auto place = load_place(args.system);
  if (!place) return fail(place.problems(), args.output.json);
  return args.csv.empty() ? run_one(args, place.value()) : run_csv(args, place.value());
}

std::string class_list() {
  std::string text = "Classes and their keys (optional ones in brackets):";
  for (const KernelClassInfo& c : kernel_classes()) {
    text += fmt::format("\n  {:<18}{}", c.name, fmt::join(c.required, " "));
    if (!c.optional.empty()) text += fmt::format(" [{}]", fmt::join(c.optional, " "));
  }
  return text;
}

}  // namespace

Command add_kernel(CLI::App& root) {
  const auto args = std::make_shared<KernelArgs>();
  CLI::App* app = root.add_subcommand(
      "kernel", "What one kernel costs on a system, against its physical limit, and why");
  app->add_option("CLASS", args->words, "Kernel class, then key=value")
      ->type_name("CLASS key=value...");
  CLI::Option* system = app->add_option("--system", args->system, "System or calibrated profile")
                            ->type_name("NAME|FILE");
  app->add_option("--csv", args->csv, "Price every row: columns class and the keys")
      ->type_name("FILE");
  add_output_options(*app, args->output);
  app->footer(class_list());
  return {app, {system}, [args] { return run_kernel(*args); }};
}

}  // namespace moecast::cli
