#include "formats/hf_folder.h"

#include <gmock/gmock.h>

#include <cstring>

#include "formats/test_bytes.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A safetensors file with one fp32 value per name.
std::string Values(const std::vector<std::string>& names, const char* dtype = "F32") {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[1],"data_offsets":[{},{}]}})", i > 0 ? "," : "",
                          names[i], dtype, i * 4, i * 4 + 4);
  }
  Bytes file = Bytes().String(header + "}");
  for (size_t i = 0; i < names.size(); ++i) file.Put(static_cast<float>(i));
  return file.text();
}

std::string OpenError(const TempFolder& folder) {
  return ErrorOf([&] { HfFolder::Open(folder.path()); });
}

void WriteIndex(const TempFolder& folder, const std::string& map) {
  folder.Write("model.safetensors.index.json", R"({"metadata":{"total_size":8},"weight_map":)" + map + "}");
}

TEST(HfFolder, ReadsConfigAndOneFile) {
  const TempFolder folder;
  folder.Write("config.json", R"({"hidden_size": 8})");
  folder.Write("model.safetensors", Values({"a", "b"}));
  const auto opened = HfFolder::Open(folder.path());
  EXPECT_EQ(opened->config()["hidden_size"].get<int>(), 8);
  EXPECT_EQ(opened->path(), folder.path());
  ASSERT_EQ(opened->tensors().size(), 2u);
  ASSERT_NE(opened->Find("b"), nullptr);
  EXPECT_EQ(opened->Find("b")->view.Row<float>(0)[0], 1.0f);
  EXPECT_EQ(opened->Find("c"), nullptr);
}

TEST(HfFolder, ReadsShards) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("s1.safetensors", Values({"a", "b"}));
  folder.Write("s2.safetensors", Values({"c", "buffer"}, "F32"));
  WriteIndex(folder, R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"})");
  const auto opened = HfFolder::Open(folder.path());
  EXPECT_EQ(opened->tensors().size(), 4u);
  ASSERT_NE(opened->Find("c"), nullptr);
  EXPECT_EQ(opened->Find("c")->view.Row<float>(0)[0], 0.0f);
}

TEST(HfFolder, TensorsOfOtherTypesCountAsPresent) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("s1.safetensors", Values({"ids"}, "I32"));
  WriteIndex(folder, R"({"ids":"s1.safetensors"})");
  EXPECT_EQ(HfFolder::Open(folder.path())->Find("ids"), nullptr);
}

TEST(HfFolder, NamesWhatIsMissingOrBroken) {
  const TempFolder folder;
  EXPECT_THAT(OpenError(folder), HasSubstr("config.json"));
  folder.Write("config.json", "[]");
  EXPECT_THAT(OpenError(folder), AllOf(HasSubstr("config.json"), HasSubstr("not an object")));
  folder.Write("config.json", "{}");
  EXPECT_THAT(OpenError(folder), HasSubstr("model.safetensors"));
  for (const char* index : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})"}) {
    folder.Write("model.safetensors.index.json", index);
    EXPECT_THAT(OpenError(folder), AllOf(HasSubstr("index.json"), HasSubstr("no weight_map")));
  }
  WriteIndex(folder, R"({"a":3})");
  EXPECT_THAT(OpenError(folder), HasSubstr("'a'"));
}

TEST(BadSafetensors, Row13_ShardMissing) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("s1.safetensors", Values({"a"}));
  WriteIndex(folder, R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_THAT(OpenError(folder), HasSubstr("s2.safetensors"));
}

TEST(BadSafetensors, Row13_ShardOfAnotherModel) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("s1.safetensors", Values({"a"}));
  folder.Write("s2.safetensors", Values({"other"}));
  WriteIndex(folder, R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_THAT(OpenError(folder), AllOf(HasSubstr("tensor 'b' is not in"), HasSubstr("s2.safetensors")));
  folder.Write("s2.safetensors", Values({"a", "b"}));
  EXPECT_THAT(OpenError(folder),
              AllOf(HasSubstr("s2.safetensors: tensor 'a' is in"), HasSubstr("s1.safetensors")));
  folder.Write("s2.safetensors", Values({"c"}));
  WriteIndex(folder, R"({"a":"s1.safetensors","c":"s1.safetensors"})");
  EXPECT_THAT(OpenError(folder), AllOf(HasSubstr("tensor 'c' is not in"), HasSubstr("s1.safetensors")));
}

TEST(BadSafetensors, Row15_IndexPointsOutsideTheFolder) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  std::filesystem::create_directory(folder.Path("sub"));
  folder.Write("sub/s.safetensors", Values({"a"}));
  for (const std::string& name :
       {std::string("../../etc/passwd"), std::string("/etc/passwd"), std::string(".."), std::string("."),
        std::string(""), std::string("sub/s.safetensors"), std::string("..\\\\x"),
        std::string("s\\u0000.safetensors")}) {
    WriteIndex(folder, R"({"a":")" + name + "\"}");
    EXPECT_THAT(OpenError(folder), HasSubstr("is not a plain file name")) << name;
  }
}

TEST(HfFolder, OpensTheModels) {
  COPPICE_NEEDS_SHARED("models");
  const auto stories = HfFolder::Open(SharedPath("models/TinyStories-656K"));
  EXPECT_EQ(stories->tensors().size(), 20u);
  EXPECT_EQ(stories->config()["hidden_size"].get<int64_t>(), stories->Find("lm_head.weight")->view.cols);
  EXPECT_EQ(stories->config()["vocab_size"].get<int64_t>(), stories->Find("lm_head.weight")->view.rows);
  const auto mini = HfFolder::Open(SharedPath("models/coppice-mini"));
  EXPECT_EQ(mini->tensors().size(), 92u);
  for (const StoredTensor& tensor : mini->tensors()) EXPECT_EQ(tensor.view.dtype, DType::kBF16);
  EXPECT_EQ(mini->Find("model.embed_tokens.weight")->shape, (std::vector<int64_t>{2048, 256}));
}

// The parity files are single files; links arrange each as a folder.
std::unique_ptr<HfFolder> OpenParity(const TempFolder& folder, const std::string& model, bool sharded) {
  const auto link = [&](const std::string& from, const std::string& to) {
    std::filesystem::create_symlink(std::filesystem::absolute(SharedPath("data/parity/" + from)),
                                    folder.Path(to));
  };
  link(model + "_config.json", "config.json");
  if (sharded) {
    link(model + ".safetensors.index.json", "model.safetensors.index.json");
    for (const char* part : {"-00001-of-00002.safetensors", "-00002-of-00002.safetensors"}) {
      link(model + part, model + part);
    }
  } else {
    link(model + ".safetensors", "model.safetensors");
  }
  return HfFolder::Open(folder.path());
}

TEST(HfFolder, OpensTheParityModels) {
  COPPICE_NEEDS_SHARED("data/parity");
  const std::pair<const char*, size_t> models[] = {{"tiny_llama", 22},
                                                   {"tiny_llama_q8", 20},
                                                   {"tiny_bloom", 29},
                                                   {"tiny_qwen2", 27},
                                                   {"tiny_mistral", 21}};
  for (const auto& [model, tensors] : models) {
    const TempFolder folder;
    EXPECT_EQ(OpenParity(folder, model, false)->tensors().size(), tensors) << model;
  }
}

TEST(HfFolder, ShardedLlamaEqualsUnsharded) {
  COPPICE_NEEDS_SHARED("data/parity");
  const TempFolder whole_folder, sharded_folder;
  const auto whole = OpenParity(whole_folder, "tiny_llama", false);
  const auto sharded = OpenParity(sharded_folder, "tiny_llama", true);
  ASSERT_EQ(sharded->tensors().size(), whole->tensors().size());
  for (const StoredTensor& tensor : whole->tensors()) {
    const StoredTensor* other = sharded->Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape);
    ASSERT_EQ(other->view.dtype, tensor.view.dtype);
    const auto bytes = static_cast<size_t>(tensor.view.stride * tensor.view.rows);
    EXPECT_EQ(std::memcmp(other->view.data, tensor.view.data, bytes), 0) << tensor.name;
  }
}

}  // namespace
}  // namespace coppice
