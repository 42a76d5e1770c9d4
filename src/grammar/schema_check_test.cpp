#include "grammar/schema_check.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "grammar/schema_values.h"

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;

std::vector<SchemaFault> Faults(const char* schema, const char* value) {
  return CheckSchema(Json::parse(schema), Json::parse(value));
}

TEST(SchemaCheck, SaysWhereAndWhat) {
  const char* schema = R"({"type": "object", "required": ["a/b"], "additionalProperties": false,
      "properties": {"a/b": {"type": "array", "items": {"multipleOf": 0.1}, "uniqueItems": true}, "c": {"maxLength": 2}}})";
  EXPECT_TRUE(Faults(schema, R"({"a/b": [0.3, 7, 0.4], "c": "äö"})").empty());
  const std::vector<SchemaFault> faults = Faults(schema, R"({"a/b": [0.35, 1, 1.0], "c": "abc", "d": 1})");
  ASSERT_EQ(faults.size(), 4u);
  EXPECT_EQ(faults[0].path, "/a~1b/0");
  EXPECT_EQ(faults[0].message, "0.35 is no multiple of 0.1");
  EXPECT_EQ(faults[1].path, "/a~1b");
  EXPECT_EQ(faults[1].message, "items 1 and 2 are equal");
  EXPECT_EQ(faults[2].path, "/c");
  EXPECT_EQ(faults[3].message, "the member \"d\" is not allowed");
  EXPECT_EQ(CheckSchema(Json::parse(schema), Json::parse(R"({"a/b": [0.35, 1, 1.0], "d": 1})"), 1).size(),
            1u);
}

TEST(SchemaCheck, HostileSchemasAreGivenUp) {
  const std::string as(5000, 'a');
  const std::pair<std::string, std::string> cases[] = {
      {R"({"$ref": "#"})", "1"},
      {R"({"pattern": "^(a|a)*(a|a)*(a|a)*b$"})", "\"" + as + "\""},
      {R"x({"items": {"pattern": "^((a+)+)+$"}})x", "[\"" + std::string(40, 'a') + "!\"]"},
      {R"x({"pattern": "(((a{999}){999}){999})"})x", "\"a\""},
      {R"({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]},
          "b": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}})",
       "1"},
      {R"({"$ref": "http://example.com/other"})", "1"},
      {R"({"pattern": "("})", "\"a\""},
  };
  for (const auto& [schema, value] : cases) {
    EXPECT_THROW(CheckSchema(Json::parse(schema), Json::parse(value)), Error) << schema;
  }
  std::string many = "[0";
  for (int i = 1; i < 20000; ++i) many += "," + std::to_string(i);
  EXPECT_THROW(Faults(R"({"uniqueItems": true})", (many + "]").c_str()), Error);
}

// The official JSON-Schema-Test-Suite, where COPPICE_JSON_SCHEMA_SUITE names its folder (with `tests`).
class Suite {
 public:
  void Run(const std::string& draft, SchemaDraft kind) {
    const char* root = std::getenv("COPPICE_JSON_SCHEMA_SUITE");
    if (root == nullptr) GTEST_SKIP() << "COPPICE_JSON_SCHEMA_SUITE names no folder";
    for (const auto& file :
         std::filesystem::directory_iterator(std::filesystem::path(root) / "tests" / draft)) {
      if (file.path().extension() != ".json") continue;
      const std::string name = file.path().stem();
      // Other documents are not fetched; the dialects of $vocabulary are such documents.
      if (name == "refRemote" || name == "vocabulary") continue;
      std::ifstream stream(file.path());
      for (const Json& group : Json::parse(stream)) RunGroup(name, group, kind);
    }
    EXPECT_GT(run_, 800);
    EXPECT_LT(unknown_, 40);
  }

 private:
  void RunGroup(const std::string& name, const Json& group, SchemaDraft kind) {
    for (const Json& test : group["tests"]) {
      SCOPED_TRACE(name + ": " + group["description"].get<std::string>() + ": " +
                   test["description"].get<std::string>());
      try {
        const bool fits = CheckSchema(group["schema"], test["data"], 8, kind).empty();
        ++run_;
        EXPECT_EQ(fits, test["valid"].get<bool>());
      } catch (const Error& error) {
        // A reference to the schema of schemas is one to another document.
        EXPECT_NE(std::string(error.what()).find("$ref"), std::string::npos) << error.what();
        ++unknown_;
      }
    }
  }

  int run_ = 0;
  int unknown_ = 0;
};

TEST(SchemaCheck, OfficialSuiteOfDraft7) { Suite().Run("draft7", SchemaDraft::k7); }
TEST(SchemaCheck, OfficialSuiteOfDraft2020) { Suite().Run("draft2020-12", SchemaDraft::k2020); }

}  // namespace
}  // namespace coppice
