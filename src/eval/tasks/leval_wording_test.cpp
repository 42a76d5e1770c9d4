#include "eval/tasks/leval_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_files.h"

namespace coppice::leval_wording_test {
namespace {

using testing::HasSubstr;

// Files of L-Eval's form, with texts of this test.
constexpr const char* kConfig = R"py(
datasets = ["gsm100", "coursera"]
def get_sys_prompt(args, file_name):
    if "gsm" in file_name:
        prompt = "Solve. End with \"N\". "
    elif "topic" in file_name:
        prompt  = "Remember\nthe topics. "
    elif "exam" in args.metric:
        prompt = "Answer the exam. "
    else:
        prompt = "Open. "
    return prompt
)py";
constexpr const char* kProgram = R"py(
                if "gsm" in file_name:
                    context = document + "\n\n" + inst
                elif args.metric == "exam_eval":
                    context = "Doc: {document} \nQuestion: {inst}. Directly. "
                else:
                    context = "Doc: {document} Instruction: {inst} " + f"\nIn {len(out.split())} words."
)py";

TEST(LEvalWording, ReadsThePromptsOfItsRepository) {
  const LEvalWording wording = ParseLEvalWording(kConfig, kProgram, "x");
  EXPECT_EQ(wording.System("gsm100"), "Solve. End with \"N\". ");
  EXPECT_EQ(wording.System("topic_retrieval_longchat"), "Remember\nthe topics. ");
  EXPECT_EQ(wording.System("coursera"), "Answer the exam. ");
  EXPECT_EQ(wording.question, "Doc: {document} \nQuestion: {inst}. Directly. ");
}

TEST(LEvalWording, FilesWithoutPromptsAreErrorsThatNameThem) {
  for (const auto& [config, program] :
       {std::pair("", kProgram), std::pair(kConfig, ""), std::pair("def get_sys_prompt: if \"a", kProgram),
        std::pair("def get_sys_prompt \"\\", kProgram)}) {
    EXPECT_THAT(ErrorOf([&, c = config, p = program] { ParseLEvalWording(c, p, "L-Eval/Baselines"); }),
                HasSubstr("[eval] L-Eval/Baselines: holds no prompts"));
  }
}

TEST(LEvalWording, IsFoundBelowADataFolder) {
  const TempFolder folder;
  TaskRequest request;
  request.data = {folder.path()};
  EXPECT_FALSE(FindLEvalWording(request));
  std::filesystem::create_directories(folder.Path("Baselines"));
  folder.Write("Baselines/LEval_config.py", kConfig);
  EXPECT_FALSE(FindLEvalWording(request)) << "both files are needed";
  folder.Write("Baselines/llama2-chat-test.py", kProgram);
  const auto wording = FindLEvalWording(request);
  ASSERT_TRUE(wording);
  EXPECT_EQ(wording->System("tpo"), "Answer the exam. ");
}

}  // namespace
}  // namespace coppice::leval_wording_test
