#include <unistd.h>

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "calibrate/device.hpp"
#include "calibrate/fit/write_profile.hpp"
#include "cli/command.hpp"
#include "core/document.hpp"
#include "report/table.hpp"
#include "topology/profile.hpp"

namespace moecast::cli {
namespace {

struct CalibrateArgs {
  CalibrationRequest request;
  std::string only, system, samples, compare;
  Output output;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t from = 0; from < list.size();) {
    const std::size_t comma = std::min(list.find(',', from), list.size());
    if (comma > from) words.push_back(list.substr(from, comma - from));
    from = comma + 1;
  }
  return words;
}

Diagnostics check_sections(const std::vector<std::string>& only) {
  std::vector<std::string> names;
  for (const CalibrationSection& s : calibration_sections()) names.push_back(s.name);
  Diagnostics problems;
  for (const std::string& word : only) {
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      problems.push_back(
          usage("--only", fmt::format("no section is called '{}'", word), suggestion(word, names)));
    }
  }
  return problems;
}

/// The shipped system with that GPU; `chosen` wins.
Result<System> system_of(const std::string& chosen, const SampleDevice& device) {
  if (!chosen.empty()) return load_system(chosen);
  for (const std::string& name : shipped_systems()) {
    auto system = load_system(name);
    if (system && system.value().gpu.name == device.name) return system;
  }
  return usage("--system",
               fmt::format("is needed: no shipped system has the GPU '{}'", device.name),
               "name a system, or a profile with the system inside (docs/formats.md)");
}

/// NAME.samples.json beside NAME.yaml.
std::string samples_beside(const std::string& profile) {
  const std::filesystem::path path(profile);
  return (path.parent_path() / (path.stem().string() + ".samples.json")).string();
}

CalibrationSink sink() {
  CalibrationSink out;
  out.warn = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  if (isatty(STDERR_FILENO) == 1) {
    out.progress = [](const CalibrationProgress& p) {
      const int filled = static_cast<int>(30 * p.fraction);
      std::fprintf(stderr, "\r[%-30s] %3.0f %%  %3.0f s left  %-14s",
                   std::string(static_cast<std::size_t>(filled), '#').c_str(), 100 * p.fraction,
                   p.left_s, p.section.c_str());
      if (p.fraction >= 1) std::fputc('\n', stderr);
    };
  }
  return out;
}

std::string number(double value, int digits = 1) { return fmt::format("{:.{}f}", value, digits); }

std::string fit_text(const ProfileFit& fit, const Samples& samples, const Style& style) {
  Table table({{"curve", Table::Align::left},
               {"kernels"},
               {"median %"},
               {"p90 %"},
               {"bias %"},
               {"noise %"},
               {"prior %"},
               {"", Table::Align::left}});
  for (const CurveFit& c : fit.curves) {
    table.add({c.name, std::to_string(c.points), number(c.held_out.median), number(c.held_out.p90),
               number(c.held_out.bias), number(c.noise_pct), number(c.prior.median),
               c.refused.empty() ? "" : "refused: " + c.refused});
  }
  std::string text = fmt::format("{}: {} samples; errors on kernels that the fit has not seen\n\n",
                                 style.bold(samples.device.name), samples.samples.size()) +
                     table.to_text(style);
  if (!fit.ignored.empty())
    text += fmt::format("\n  not fitted: {}\n", fmt::join(fit.ignored, ", "));
  return text;
}

std::string comparison_text(const std::vector<ClassComparison>& lines, const std::string& profile,
                            const Style& style) {
  Table table({{"kernel", Table::Align::left},
               {"n"},
               {"here % of limit"},
               {"best"},
               {"profile % of limit"},
               {"time here / profile"}});
  for (const ClassComparison& c : lines) {
    table.add({c.name, std::to_string(c.kernels), number(100 * c.fraction_here),
               number(100 * c.best_here), number(100 * c.fraction_there), number(c.time_ratio, 2)});
  }
  return fmt::format("\nAgainst {} and the data sheet (medians; 100 % = its peak or bandwidth)\n\n",
                     style.bold(profile)) +
         table.to_text(style);
}

Json comparison_json(const std::vector<ClassComparison>& lines) {
  Json out = Json::array();
  for (const ClassComparison& c : lines) {
    out.push_back({{"kernel", c.name},
                   {"kernels", c.kernels},
                   {"fraction_of_limit", c.fraction_here},
                   {"best_fraction_of_limit", c.best_here},
                   {"profile_fraction_of_limit", c.fraction_there},
                   {"time_ratio", c.time_ratio}});
  }
  return out;
}

int write_fit(const CalibrateArgs& args, const Samples& samples, const System& system,
              const std::string& base, const ProfileFit& fit) {
  Json document = fit_json(fit, samples);
  std::vector<ClassComparison> lines;
  if (!args.compare.empty()) {
    const auto other = profile_for(args.compare, system);
    if (!other) return fail(other.problems(), args.output.json);
    lines = compare_with(samples, system, other.value());
    document["compare"] = comparison_json(lines);
  }
  if (!args.output.file.empty()) {
    const std::string name = args.system.empty() ? system.name : args.system;
    const Diagnostics problems =
        write_file(args.output.file, profile_yaml(fit, samples, base, name));
    if (!problems.empty()) return fail(problems, args.output.json);
  }
  return deliver({args.output.json, ""}, kSuccess, document, [&](const Style& style) {
    return fit_text(fit, samples, style) +
           (lines.empty() ? "" : comparison_text(lines, args.compare, style));
  });
}

/// Nothing to measure with is not bad input.
int fail_missing(const Diagnostics& problems, bool json) {
  fail(problems, json);
  return kMissing;
}

int run_calibrate(CalibrateArgs args) {
  args.request.only = split(args.only);
  if (const Diagnostics problems = check_sections(args.request.only); !problems.empty())
    return fail(problems, args.output.json);
  if (args.samples.empty() && args.output.file.empty() && args.compare.empty()) {
    return fail(
        {usage("-o", "is required, unless --fit or --compare is given", "such as -o my-node.yaml")},
        args.output.json);
  }
  const bool measures = args.samples.empty();
  if (measures && !args.output.file.empty())
    args.request.samples_path = samples_beside(args.output.file);
  const Result<Samples> samples =
      measures ? run_calibration(args.request, sink()) : read_samples(args.samples);
  if (!samples && measures) return fail_missing(samples.problems(), args.output.json);
  if (!samples) return fail(samples.problems(), args.output.json);
  const auto system = system_of(args.system, samples.value().device);
  if (!system) return fail(system.problems(), args.output.json);
  const std::string base = system.value().gpu.compute_capability < 10 ? "hopper" : "blackwell";
  const auto prior = load_profile(base);
  if (!prior) return fail(prior.problems(), args.output.json);
  return write_fit(args, samples.value(), system.value(), base,
                   fit_profile(samples.value(), system.value(), prior.value()));
}

std::string section_list() {
  std::string text = "Sections for --only:";
  for (const CalibrationSection& s : calibration_sections())
    text += fmt::format("\n  {:<14}{}", s.name, s.what);
  return text;
}

}  // namespace

Command add_calibrate(CLI::App& root) {
  const auto args = std::make_shared<CalibrateArgs>();
  CLI::App* app = root.add_subcommand(
      "calibrate",
      "Measure the kernels of a training step here, or refit samples, and write a "
      "system profile (docs/calibration.md)");
  app->add_option("-o,--output", args->output.file,
                  "Profile to write; the samples are kept beside it")
      ->type_name("PROFILE.yaml");
  app->add_flag("--quick", args->request.quick, "Fewer shapes: under 3 minutes");
  app->add_option("--random", args->request.seed,
                  "Random shapes instead of the grid, to hold a profile against (--compare)")
      ->type_name("SEED")
      ->check(CLI::Range(1, 1000000));
  app->add_option("--only", args->only, "Comma-separated sections to measure")
      ->type_name("SECTION,...");
  app->add_option("--run", args->request.run, "Number of this repeat of the suite")
      ->check(CLI::Range(1, 1000));
  app->add_option("--system", args->system, "What the machine is; default: by the GPU's name")
      ->type_name("NAME|FILE");
  app->add_option("--fit", args->samples, "Refit these samples; needs no GPU")->type_name("FILE");
  app->add_option("--compare", args->compare, "Set this GPU against another profile")
      ->type_name("PROFILE");
  app->add_flag("--json", args->output.json, "Print one JSON document instead of text");
  app->footer(section_list());
  return {app, {}, [args] { return run_calibrate(*args); }};
}

}  // namespace moecast::cli
