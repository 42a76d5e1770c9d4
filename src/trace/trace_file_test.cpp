#include "trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "full_disk.h"
#include "test_files.h"
#include "trace/page.h"
#include "trace/trace_test_support.h"

namespace coppice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string TextOf(const Trace& trace) {
  const TempFolder folder;
  WriteTrace(trace, folder.Path("t"));
  return FileText(folder.Path("t"));
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// What reading the small trace says once `from` in it is `to`.
std::string ErrorWith(std::string_view from, std::string_view to) {
  const TempFolder folder;
  const std::string path = folder.Write("bad.jsonl", Replaced(TextOf(SmallTrace()), from, to));
  const std::string error = ErrorOf([&] { ReadTrace(path); });
  EXPECT_THAT(error, HasSubstr(path + ":"));
  return error;
}

TEST(TraceFile, ComesBackAsItWas) {
  const TempFolder folder;
  const Trace trace = SmallTrace();
  WriteTrace(trace, folder.Path("trace.jsonl"));
  EXPECT_TRUE(ReadTrace(folder.Path("trace.jsonl")) == trace);
  EXPECT_EQ(FileText(folder.Path("trace.jsonl")), TextOf(trace)) << "equal traces, equal files";
}

TEST(TraceFile, PackedPromptAndNoStepsComeBack) {
  TraceRecorder recorder;
  recorder.BeginPrefill(2, 10, {0, 1, 5, 9});
  recorder.Layer({.kept = Span(0, 4), .ffn = Span(0, 4)});
  recorder.Layer({.kept = {}, .ffn = {}});
  recorder.EndPrefill({.kv = 1}, 2);
  Trace trace = recorder.Take();
  trace.tokens.assign(10, "x");
  const TempFolder folder;
  WriteTrace(trace, folder.Path("t"));
  EXPECT_TRUE(ReadTrace(folder.Path("t")) == trace);
  EXPECT_EQ(trace.Positions(), 4);
}

TEST(TraceFile, KeepsWhichProcessComputedWhat) {
  TraceRecorder recorder;
  recorder.BeginPrefill(2, 6);
  recorder.Computed({{0, 1, 5}, {2, 3, 4}});
  recorder.Layer({.kept = Span(0, 6), .ffn = Span(0, 6)});
  recorder.Layer({.kept = Span(0, 6), .ffn = {5}});
  recorder.EndPrefill({.kv = 1}, 2);
  Trace trace = recorder.Take();
  trace.tokens.assign(6, "x");
  const TempFolder folder;
  WriteTrace(trace, folder.Path("t"));
  const Trace read = ReadTrace(folder.Path("t"));
  EXPECT_TRUE(read == trace);
  EXPECT_EQ(read.prefill[0].computed, (std::vector<std::vector<int32_t>>{{0, 1, 5}, {2, 3, 4}}));
  EXPECT_TRUE(read.prefill[1].computed.empty());
}

TEST(TraceFile, TheFormatIsTheOneDescribed) {
  std::istringstream text(TextOf(SmallTrace()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 1u + 3 + 2);
  EXPECT_THAT(lines[0],
              StartsWith(R"({"coppice_trace":1,"model":"small.gguf","prune":"lazyllm:layers=1,keep=0.5",)"));
  EXPECT_THAT(
      lines[0],
      HasSubstr(R"("tokens":["The"," caf",{"bytes":"c3"},{"bytes":"a9"}," at","\n",{"bytes":"ff"},)"));
  EXPECT_EQ(lines[1], R"({"layer":0,"kept":"0-7","density":1.0})");
  EXPECT_EQ(lines[2], R"({"layer":1,"kept":"0-2,5,7","ffn":"0,7","density":0.25,"head_density":[0.1,0.3]})");
  EXPECT_EQ(lines[3], R"({"layer":2,"ffn":"7","rows_per_head":4,"density":1.0})");
  EXPECT_EQ(lines[5],
            R"({"step":1,"position":9,"attended":[0,0,0],"kv_bytes":2400,"aux_bytes":200,"cold_bytes":200,)"
            R"("events":[{"layer":2,"kind":"loaded","positions":"1"},)"
            R"({"layer":2,"kind":"evicted","positions":"8"}]})");
}

TEST(TraceFile, EveryBadFieldIsNamedWithItsLine) {
  struct Case {
    const char *from, *to, *line, *says;
  };
  const Case cases[] = {
      {"\"coppice_trace\":1", "\"coppice_trace\":2", ":1: ", "\"coppice_trace\" is 2"},
      {"\"coppice_trace\":1,", "", ":1: ", "no trace"},
      {"\"layers\":3", "\"layers\":0", ":1: ", "\"layers\""},
      {"\"layers\":3", "\"layers\":1000000000", ":1: ", "\"layers\""},
      {"\"layers\":3", "\"layers\":3.5", ":1: ", "\"layers\""},
      {"\"layers\":3", "\"layers\":\"3\"", ":1: ", "\"layers\""},
      {"\"layers\":3", "\"layers\":2", ":4: ", "no \"step\""},
      {"\"layers\":3", "\"layers\":4", ":5: ", "no \"layer\""},
      {"\"prompt_tokens\":8", "\"prompt_tokens\":12", ":1: ", "\"prompt_tokens\" is 12"},
      {"\"prompt_tokens\":8", "\"prompt_tokens\":18446744073709551615", ":1: ", "\"prompt_tokens\""},
      {"\"prompt_tokens\":8", "\"prompt_tokens\":-8", ":1: ", "\"prompt_tokens\""},
      {"\"prompt_tokens\":8", "\"prompt_tokens\":7", ":2: ", "position 7 is outside 0 to 6"},
      {"\"steps\":2", "\"steps\":3", ":7: ", "the file ends before step 2"},
      {"\"steps\":2", "\"steps\":1", ":6: ", "more lines"},
      {"\"steps\":2", "\"steps\":4", ":1: ", "\"steps\" is 4"},
      {"\"kv_bytes\":1800", "\"kv_bytes\":-1", ":1: ", "\"kv_bytes\""},
      {"\"kv_bytes\":1800", "\"kv_bytes\":null", ":1: ", "\"kv_bytes\" is null"},
      {"{\"bytes\":\"c3\"}", "{\"bytes\":\"c\"}", ":1: ", "a token"},
      {"{\"bytes\":\"c3\"}", "{\"bytes\":\"C3\"}", ":1: ", "a token"},
      {"{\"bytes\":\"c3\"}", "7", ":1: ", "a token"},
      {"\"tokens\":[", "\"entered\":\"\",\"tokens\":[", ":1: ", "\"entered\" is empty"},
      {"\"tokens\":[", "\"entered\":\"0-8\",\"tokens\":[", ":1: ", "\"entered\""},
      {"\"layer\":0,\"kept\":\"0-7\"", "\"layer\":0", ":2: ", "no \"kept\""},
      {"\"layer\":1", "\"layer\":2", ":3: ", "\"layer\" is 2"},
      {"\"0-2,5,7\"", "\"0-2,5,8\"", ":3: ", "\"kept\": position 8"},
      {"\"0-2,5,7\"", "[0,1]", ":3: ", "\"kept\" is array"},
      {"\"ffn\":\"0,7\"", "\"ffn\":\"7,0\"", ":3: ", "\"ffn\": positions do not ascend"},
      {"\"rows_per_head\":4", "\"rows_per_head\":6", ":4: ", "\"rows_per_head\" is 6"},
      {"\"density\":0.25", "\"density\":1.25", ":3: ", "\"density\" is 1.25"},
      {"\"density\":0.25,", "", ":3: ", "no \"density\""},
      {"\"density\":0.25,", "\"density\":0.25,\"computed\":[\"0-8\"],", ":3: ", "\"computed\": position 8"},
      {"\"density\":0.25,", "\"density\":0.25,\"computed\":[1],", ":3: ", "\"computed\" is 1"},
      {"\"density\":0.25,", "\"density\":0.25,\"computed\":\"0\",",
       ":3: ", "\"computed\" is \"0\", not a list"},
      {"[0.1,0.3]", "[0.1,\"a\"]", ":3: ", "\"head_density\""},
      {"\"position\":8", "\"position\":7", ":5: ", "\"position\" is 7"},
      {"\"position\":9", "\"position\":8", ":6: ", "\"position\" is 8"},
      {"\"position\":9", "\"position\":11", ":6: ", "\"position\" is 11"},
      {"[9,8,7]", "[9,8]", ":5: ", "\"attended\" has 2 layers"},
      {"[9,8,7]", "[10,8,7]", ":5: ", "\"attended\" is 10"},
      {"\"kind\":\"revived\"", "\"kind\":\"lost\"", ":5: ", "unknown kind \"lost\""},
      {"\"3-4,6\"", "\"3-9\"", ":5: ", "position 9 is outside 0 to 8"},
      {"{\"layer\":1,\"kind\"", "{\"layer\":3,\"kind\"", ":5: ", "\"layer\" is 3"},
      {"\"events\":[{", "\"events\":[1,{", ":5: ", "no object"},
      {"{\"layer\":1,", "[{\"layer\":1,", ":3: ", ""},
      {"{\"layer\":1,", "{\"layer\":1,\"layer\":1,", ":3: ", "duplicate key"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ErrorWith(c.from, c.to), AllOf(HasSubstr(c.line), HasSubstr(c.says)))
        << c.from << " -> " << c.to;
  }
}

TEST(TraceFile, FilesThatAreNoTracesSaySo) {
  const TempFolder folder;
  const std::string cases[] = {"",
                               "\n",
                               "hello\n",
                               "{}\n",
                               "[]\n",
                               "null\n",
                               "{\"coppice_trace\":1}\n",
                               std::string("\0\n", 2),
                               "{\"a\":\"\xff\"}\n",
                               std::string(100000, '[') + "\n"};
  for (const std::string& text : cases) {
    const std::string path = folder.Write("bad", text);
    EXPECT_THAT(ErrorOf([&] { ReadTrace(path); }), HasSubstr(path + ":1"));
  }
  EXPECT_THAT(ErrorOf([&] { ReadTrace(folder.Path("absent")); }), HasSubstr("absent"));
  EXPECT_THAT(ErrorOf([&] { ReadTrace(folder.path()); }), HasSubstr(folder.path()));
}

TEST(TraceFile, EveryTruncatedFileIsAnError) {
  const TempFolder folder;
  const std::string text = TextOf(SmallTrace());
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string path = folder.Write("short", text.substr(0, size));
    ASSERT_THAT(ErrorOf([&] { ReadTrace(path); }), StartsWith("[")) << size;
  }
}

// A file of 6 MB that asks for 4 TB: a million tokens in a thousand layers, each "as the layer before".
TEST(TraceFile, AFewBytesPerLayerCannotAskForAllMemory) {
  constexpr int kTokens = 1 << 20;
  std::string text =
      "{\"coppice_trace\":1,\"model\":\"\",\"prune\":\"\",\"backend\":\"\",\"layers\":1024,\"prompt_tokens\":"
      "1048576,"
      "\"steps\":0,\"kv_bytes\":0,\"aux_bytes\":0,\"cold_bytes\":0,\"kv_bytes_dense\":0,\"tokens\":[\"\"";
  for (int i = 1; i < kTokens; ++i) text += ",\"\"";
  text += "]}\n{\"layer\":0,\"kept\":\"0-1048575\",\"ffn\":\"0\",\"density\":1}\n";
  for (int l = 1; l < 1024; ++l) text += "{\"layer\":" + std::to_string(l) + ",\"ffn\":\"\",\"density\":1}\n";
  const TempFolder folder;
  const std::string path = folder.Write("huge", text);
  EXPECT_THAT(ErrorOf([&] { ReadTrace(path); }), HasSubstr("more than 268435456 positions"));
}

// Whatever a changed byte does, reading ends in a trace that can be drawn, or in an Error.
TEST(TraceFile, ChangedBytesNeverDoMoreThanFail) {
  const TempFolder folder;
  const std::string text = TextOf(SmallTrace());
  const std::string letters = "0123456789-,.\"[]{}:eE \n\\x\x80";
  std::mt19937 random(7);
  int read = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string changed = text;
    for (int i = 0; i < 1 + round % 3; ++i)
      changed[random() % changed.size()] = letters[random() % letters.size()];
    const std::string path = folder.Write("changed", changed);
    ErrorOf([&] {
      TracePage(ReadTrace(path));
      ++read;
    });
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 1000);
}

TEST(TraceFile, AFileThatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  EXPECT_THAT(ErrorOf([&] { WriteTrace(SmallTrace(), folder.Path("no/such/folder")); }),
              HasSubstr("no/such/folder"));
  // What stood there stays until all of the new file is written, here stopped by a full disk.
  const std::string path = folder.Write("old", "old");
  std::string error;
  {
    const FullDisk full;
    error = ErrorOf([&] { WriteTrace(SmallTrace(), path); });
  }
  EXPECT_THAT(error, HasSubstr("File too large"));
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
  EXPECT_THAT(ErrorOf([&] { WriteTrace(SmallTrace(), folder.Path("")); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace coppice
