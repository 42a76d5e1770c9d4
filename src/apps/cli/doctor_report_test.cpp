#include "apps/cli/doctor_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace coppice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ThreadHints(const ThreadFacts& facts) { return ThreadFindings(facts).at(1).hints; }

TEST(DoctorReport, ThreadsAgainstTheQuota) {
  EXPECT_THAT(ThreadHints({.online = 8, .usable = 4}), IsEmpty());
  EXPECT_THAT(ThreadHints({.online = 8, .usable = 4, .quota = 4}), IsEmpty());
  EXPECT_THAT(ThreadHints({.online = 8, .usable = 4, .quota = 2.5}), IsEmpty());  // the default is 2 threads
  EXPECT_EQ((ThreadFacts{.online = 8, .usable = 4, .quota = 2.5}.threads()), 2);
  EXPECT_EQ((ThreadFacts{.online = 8, .usable = 4, .quota = 0.2}.threads()), 1);
  EXPECT_THAT(ThreadHints({.wanted = 4, .online = 8, .usable = 4, .quota = 2}),
              ElementsAre("4 threads, but the control group allows 2 CPUs: -t 2"));
  EXPECT_THAT(ThreadHints({.wanted = 4, .online = 8, .usable = 4, .quota = 2.5}),
              ElementsAre("4 threads, but the control group allows 2.5 CPUs: -t 2"));
  EXPECT_THAT(ThreadHints({.wanted = 2, .online = 8, .usable = 4, .quota = 2.5}), IsEmpty());
  EXPECT_THAT(ThreadHints({.wanted = 1, .online = 8, .usable = 4, .quota = 0.5}), IsEmpty());  // no fewer
  EXPECT_THAT(ThreadHints({.wanted = 5, .online = 8, .usable = 4}),
              ElementsAre("5 threads, but this process may use 4 CPUs: -t 4"));
  EXPECT_THAT(ThreadHints({.wanted = 5, .online = 8, .usable = 4, .quota = 1.5}),
              ElementsAre("5 threads, but this process may use 4 CPUs: -t 1"));
}

TEST(DoctorReport, CpusAndLoad) {
  const std::vector<Finding> quiet =
      ThreadFindings({.online = 8, .cores = 4, .usable = 2, .quota = 1.5, .load = 4});
  EXPECT_EQ(quiet[0].finding,
            "8 CPUs on 4 cores, of which this process may use 2; the control group allows the time of 1.5");
  EXPECT_THAT(quiet.at(2).hints, IsEmpty());
  EXPECT_THAT(ThreadFindings({.online = 8, .usable = 8, .load = 4.1}).at(2).hints,
              ElementsAre(HasSubstr("other programs")));
  EXPECT_EQ(ThreadFindings({.online = 1, .usable = 1}).size(), 2u);
  EXPECT_EQ(ThreadFindings({.online = 1, .usable = 1})[0].finding, "1 CPU");
}

TEST(DoctorReport, Kernels) {
  const auto finding = [](const IsaFacts& facts) { return IsaFindings(facts).at(0); };
  EXPECT_THAT(finding({.best = Isa::kAvx2, .used = Isa::kAvx2}).hints, IsEmpty());
  EXPECT_THAT(finding({.best = Isa::kAvx2, .forced = "avx2", .used = Isa::kAvx2}).hints, IsEmpty());
  EXPECT_THAT(finding({.best = Isa::kScalar, .used = Isa::kScalar}).hints, ElementsAre(HasSubstr("no AVX2")));
  EXPECT_THAT(finding({.best = Isa::kAmx, .forced = "avx512", .used = Isa::kAvx512}).hints,
              ElementsAre("COPPICE_ISA=avx512 is set, but this CPU has amx: unset it"));
  const Finding none = finding({.best = Isa::kAvx2, .forced = "x", .error = "COPPICE_ISA=x: not one"});
  EXPECT_EQ(none.finding, "none: COPPICE_ISA=x: not one");
  EXPECT_THAT(none.hints, ElementsAre(HasSubstr("unset it")));
  EXPECT_TRUE(none.facts["used"].is_null());
}

TEST(DoctorReport, VectorUnitsAndAmxThatIsRefused) {
  const auto finding = [](const CpuFeatures& cpu) { return IsaFindings({.cpu = cpu}).at(1); };
  EXPECT_EQ(finding({}).finding, "none that the kernels use");
  CpuFeatures cpu;
  cpu.avx2 = cpu.avx512 = cpu.avx512_bf16 = cpu.amx = cpu.amx_on_chip = true;
  EXPECT_EQ(finding(cpu).finding, "AVX2, AVX-512, AVX-512 BF16, AMX");
  EXPECT_THAT(finding(cpu).hints, IsEmpty());
  cpu.amx = false;
  EXPECT_EQ(finding(cpu).finding, "AVX2, AVX-512, AVX-512 BF16; AMX is refused");
  EXPECT_THAT(finding(cpu).hints, ElementsAre(HasSubstr("Linux 5.16")));
}

TEST(DoctorReport, MemoryHugePagesAndUring) {
  const SystemMemory memory{.total = 8 << 20, .available = 4 << 20, .swap_total = 2048, .swap_free = 1024};
  EXPECT_EQ(MemoryFinding(memory, 1 << 20, 1 << 20).finding,
            "8.00 MiB, 4.00 MiB available; the control group's limit is 1.00 MiB; swap 2.00 KiB");
  EXPECT_EQ(MemoryFinding({}, std::nullopt, 0).finding, "unknown; no swap");
  EXPECT_EQ(HugePagesFinding("").finding, "unknown");
  EXPECT_THAT(HugePagesFinding("never").finding, HasSubstr("never"));
  EXPECT_THAT(UringFinding(0).hints, IsEmpty());
  EXPECT_EQ(UringFinding(EPERM).finding, "refused: Operation not permitted");
  EXPECT_EQ(UringFinding(EPERM).hints.size(), 1u);
}

TEST(DoctorReport, TextLinesUpAndJsonHasTheSame) {
  const std::vector<Finding> findings = {
      {.key = "a", .what = "short", .finding = "one"},
      {.key = "b", .what = "a longer name", .finding = "two", .hints = {"do it"}, .facts = {{"n", 2}}}};
  EXPECT_EQ(FindingsText(findings),
            "short          one\n"
            "a longer name  two\n"
            "               hint: do it\n");
  EXPECT_EQ(FindingsJson(findings).dump(),
            R"({"a":{"finding":"one","hints":[]},"b":{"finding":"two","n":2,"hints":["do it"]}})");
}

}  // namespace
}  // namespace coppice::cli
