#include "cli/run_moecast.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "temp_dir.hpp"

namespace moecast::test {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> result = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name_and_equals = text.substr(0, text.find('=') + 1);
    const auto is_same = [&](const std::string& c) { return c.starts_with(name_and_equals); };
    if (std::none_of(changes.begin(), changes.end(), is_same)) result.emplace_back(text);
  }
  return result;
}

/// The child's wait status.
int spawn_and_wait(std::vector<std::string> command, const RunOptions& options,
                   const std::string& out_file, const std::string& err_file) {
  std::vector<std::string> environment = environment_with(options.environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int create = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_file.c_str(), create, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_file.c_str(), create, 0600);
  if (!options.working_dir.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, options.working_dir.c_str());
  }
  pid_t child = 0;
  const int error = posix_spawn(&child, command.front().c_str(), &actions, nullptr,
                                pointers(command).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error(command.front() + ": " + std::strerror(error));
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  return status;
}

}  // namespace

Outcome run(const std::vector<std::string>& args, const RunOptions& options) {
  std::vector<std::string> command = {MOECAST_BINARY};
  command.insert(command.end(), args.begin(), args.end());
  return run_program(command, options);
}

Outcome run_program(const std::vector<std::string>& command, const RunOptions& options) {
  const TempDir temp;
  const std::string out_file = (temp.path() / "out").string();
  const std::string err_file = (temp.path() / "err").string();
  const int status = spawn_and_wait(command, options, out_file, err_file);
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {exit_code, read_file(out_file), read_file(err_file)};
}

}  // namespace moecast::test
