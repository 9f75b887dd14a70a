// Launch scripts, read without running them. Expected words are what bash 5 makes of the same text.
#include <fmt/format.h>

#include <random>

#include "catch.hpp"
#include "core/shell.hpp"

using namespace moecast;

namespace {

std::string joined(const ShellCommand& command) {
  std::string text;
  for (const ShellWord& word : command.words) text += (text.empty() ? "" : " ") + word.text;
  return text;
}

/// The words of the last command.
std::string last(const std::string& script,
                 const std::map<std::string, std::string>& variables = {}) {
  const ShellScript read = read_shell(script, "run.sh", variables);
  return read.commands.empty() ? "" : joined(read.commands.back());
}

std::size_t warnings(const std::string& script) {
  return read_shell(script, "run.sh").warnings.size();
}

}  // namespace

TEST_CASE("do variables, defaults and sums become their values?") {
  CHECK(last("TP=4\nrun --tp $TP --pp ${PP:-2}") == "run --tp 4 --pp 2");
  CHECK(last("A=3; B=$((A * 2 + 1)); run $B $((B % 4)) $(( (A+B) / 2 ))") == "run 7 3 5");
  CHECK(last("WORLD_SIZE=$(($NODES * $PER_NODE))\nrun $WORLD_SIZE",
             {{"NODES", "16"}, {"PER_NODE", "8"}}) == "run 128");
  CHECK(last(": ${X:=5}\nrun $X") == "run 5");
  CHECK(last("X=a\nrun ${X:+set} ${Y:+set}end") == "run set end");
  CHECK(last("X=\nrun ${X:-empty} ${X-unset}.") == "run empty .");
  CHECK(last("N=Bf16; run ${N^^} ${N,,}") == "run BF16 bf16");
}

TEST_CASE("is a variable split into words only where bash splits it?") {
  const ShellScript script = read_shell("A='--x 1  --y'\nrun $A \"$A\"", "run.sh");
  REQUIRE(script.commands.size() == 1);
  REQUIRE(script.commands[0].words.size() == 5);
  CHECK(script.commands[0].words[3].text == "--y");
  CHECK(script.commands[0].words[4].text == "--x 1  --y");
}

TEST_CASE("do arrays grow, expand item by item, and count?") {
  CHECK(last("A=( --tp 2  # two\n  --pp 4 )\nA+=(--sequence-parallel)\nrun \"${A[@]}\" ${#A[@]}") ==
        "run --tp 2 --pp 4 --sequence-parallel 5");
  CHECK(last("A=(one two)\nrun ${A[1]} ${A} \"${A[*]}\"") == "run two one one two");
  const ShellScript script = read_shell("A=(\"a b\" c)\nrun \"${A[@]}\"", "run.sh");
  CHECK(script.commands.at(0).words.at(1).text == "a b");
}

TEST_CASE("do line continuations join and comments go, with every word on its own line?") {
  const ShellScript script = read_shell(
      "#!/bin/bash\nARGS=\"\n  --tp 2 \\\n  --pp 4\n\"\nrun $ARGS \\\n  --ep 8 # no\n", "run.sh");
  const auto& words = script.commands.at(0).words;
  REQUIRE(words.size() == 7);
  CHECK(words[1].line == 3);
  CHECK(words[3].text == "--pp");
  CHECK(words[3].line == 4);
  CHECK(words[5].text == "--ep");
  CHECK(words[5].line == 7);
}

TEST_CASE("is the branch taken whose condition is known to hold?") {
  const std::string script =
      "if [ \"$MODE\" = a ]; then X=1; elif [[ $N -gt 8 && -n $MODE ]]; then X=2; else X=3; fi\n"
      "run $X";
  CHECK(last(script, {{"MODE", "a"}, {"N", "1"}}) == "run 1");
  CHECK(last(script, {{"MODE", "b"}, {"N", "9"}}) == "run 2");
  CHECK(last(script, {{"MODE", "b"}, {"N", "8"}}) == "run 3");
  CHECK(last("X=1\n[ $N -eq 2 ] && X=2\n[[ $N == 2 ]] || X=3\nrun $X", {{"N", "2"}}) == "run 2");
  CHECK(last("if (( N % 2 == 0 )); then X=even; else X=odd; fi; run $X", {{"N", "7"}}) ==
        "run odd");
  CHECK(last("case $P in bf16|fp16) X=half;; fp8) X=eight;; *) X=other;; esac\nrun $X",
             {{"P", "fp8"}}) == "run eight");
  CHECK(last("if ! [ -z \"$P\" ]; then run set; fi", {{"P", "x"}}) == "run set");
}

TEST_CASE("is a branch that only the shell can decide left out, with a warning on its line?") {
  const ShellScript script =
      read_shell("X=1\nif [ -f /etc/host ]; then\n X=2\nelse\n X=3\nfi\nrun $X", "run.sh");
  CHECK(joined(script.commands.back()) == "run 1");
  REQUIRE(script.warnings.size() == 1);
  CHECK(script.warnings[0].line == 2);
  CHECK(warnings("for i in 1 2; do run $i; done") == 1);
  CHECK(warnings("source env.sh") == 1);
  CHECK(warnings("if docker ps; then X=1; else X=2; fi") == 1);
}

TEST_CASE("is a variable that nobody sets empty in a condition, and said to be?") {
  const ShellScript script =
      read_shell("if [ -z ${VPP} ]; then X=none; else X=$VPP; fi\nrun $X ${VPP}", "run.sh");
  CHECK(joined(script.commands.back()) == "run none ${VPP}");
  REQUIRE(script.warnings.size() == 1);
  CHECK(script.warnings[0].line == 1);
  CHECK(script.warnings[0].hint.find("--var VPP=VALUE") != std::string::npos);
  CHECK(last("[ \"$1\" = a ] && X=1\nrun .$X") == "run .$X");  // the script's argument: unknown
}

TEST_CASE("what only the shell knows stays as it was written") {
  CHECK(last("run $MASTER_ADDR ${NODE:?} $(hostname -s) `date` $1") ==
        "run $MASTER_ADDR ${NODE:?} $(hostname -s) `date` $1");
  CHECK(last("run a \"$@\" b $*") == "run a  b");
  CHECK(is_undecided("a${X}"));
  CHECK_FALSE(is_undecided("Et*3|(tt|)*29m|L"));
  CHECK(undecided_names("$A/${B:-x}/$C_1") == std::vector<std::string>{"A", "B", "C_1"});
}

TEST_CASE("are exports, prefixes, here documents and inner scripts seen?") {
  const ShellScript script = read_shell(
      "export A=1 B=2\nC=3\nD=4 run $C\nE=5 srun -N 2 bash -c \"python train.py --tp $C\"\n"
      "sbatch <<EOF\n#SBATCH --nodes=2\nexport F=6\nrun inner\nEOF\ncat > x <<'E'\nrun not\nE\n",
      "run.sh");
  CHECK(script.environment ==
        std::map<std::string, std::string>{{"A", "1"}, {"B", "2"}, {"F", "6"}});
  REQUIRE(script.commands.size() == 6);
  CHECK(script.commands[0].env.at("D") == "4");
  CHECK(joined(script.commands[2]) == "python train.py --tp 3");
  CHECK(joined(script.commands[4]) == "run inner");
  CHECK(script.commands[4].words[0].line == 8);
}

TEST_CASE("are pipes, redirections and functions no words of a command?") {
  const ShellScript script = read_shell(
      "f() {\n  python a.py --x 1 2>&1 | tee log.txt\n}\nf > out.txt &\n(cd x && python b.py)\n"
      "eval \"python c.py --y\"",
      "run.sh");
  std::vector<std::string> commands;
  for (const ShellCommand& command : script.commands) commands.push_back(joined(command));
  CHECK(commands == std::vector<std::string>{"python a.py --x 1", "tee log.txt", "f", "python b.py",
                                             "python c.py --y"});
}

TEST_CASE("does a script without end stay within bounds?") {
  std::string doubling = "a=xxxxxxxx\n";
  for (int i = 0; i < 100; ++i) doubling += "a=$a$a\n";
  CHECK(warnings(doubling + "run $a") >= 1);
  std::string nested;
  for (int i = 0; i < 4'000; ++i) nested += "if ";
  read_shell(nested, "run.sh");
  for (const char* piece :
       {"$((", "${x:-", "$(", "\"${", "((", "a=(", "{ ", "( ", "eval \"", "case x in "}) {
    std::string many;
    for (int i = 0; i < 4'000; ++i) many += piece;
    read_shell(many, "run.sh");
  }
  read_shell("x=x+x+x+x+x+x\nrun $((x))", "run.sh");
}

TEST_CASE("do random bytes and random script pieces never crash the reader?") {
  const std::vector<std::string> pieces{
      "if ", "then ", "fi",  "else ", "case ", "esac",     "in ",     "do ", "done", "for ",
      "[ ",  "]",     "[[ ", "]]",    "\n",    ";",        "&&",      "||",  "|",    "(",
      ")",   "{",     "}",   "$",     "${",    "$((",      "))",      "\"",  "'",    "`",
      "\\",  "\\\n",  "A",   "A=",    "A+=",   "A=(",      "${A[@]}", ":-",  "#",    "<<E\n",
      "E\n", "1",     " ",   "--tp",  "eval ", "bash -c ", "export ", ">",   "<(",   "!",
      ";;",  "-gt",   "=",   "\t",    "\r\n"};
  std::mt19937 random(20261129);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const auto length = random() % 40;
    for (unsigned i = 0; i < length; ++i) {
      text += random() % 8 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                : pieces[random() % pieces.size()];
    }
    INFO(text);
    const ShellScript script = read_shell(text, "run.sh", {{"A", "1"}});
    for (const ShellCommand& command : script.commands) CHECK(!command.words.empty());
  }
}
