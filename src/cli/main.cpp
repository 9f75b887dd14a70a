#include <cstdio>
#include <exception>

#include "cli/command.hpp"

int main(int argc, char** argv) {
  try {
    return moecast::cli::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moecast: internal error: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "moecast: internal error\n");
  }
  return moecast::cli::kBadInput;
}
