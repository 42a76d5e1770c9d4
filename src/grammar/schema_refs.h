// Where the references of a JSON schema lead: pointers, anchors, and schemas with an $id within it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coppice {

class SchemaRefs {
 public:
  // `root` must outlive this object. `ref_is_alone`: what stands beside $ref says nothing, as in draft 7.
  explicit SchemaRefs(const nlohmann::ordered_json& root, bool ref_is_alone = false);

  // What `reference`, which stands in `schema`, refers to. Throws Error if that is not in the root.
  const nlohmann::ordered_json& Target(const nlohmann::ordered_json& schema,
                                       const nlohmann::ordered_json& reference) const;
  // The same for $dynamicRef: `scope` has the schemas that are being applied, the outermost first.
  const nlohmann::ordered_json& DynamicTarget(const nlohmann::ordered_json& schema,
                                              const nlohmann::ordered_json& reference,
                                              const std::vector<const nlohmann::ordered_json*>& scope) const;

  // Whether schemas in the root have an $id of their own; and whether `schema` is an object of the root.
  bool has_inner() const { return resources_.size() > 1; }
  bool Knows(const nlohmann::ordered_json& schema) const { return resource_of_.contains(&schema); }

 private:
  struct Resource {
    std::string uri;
    const nlohmann::ordered_json* root = nullptr;
    std::map<std::string, const nlohmann::ordered_json*, std::less<>> anchors = {};
    std::map<std::string, const nlohmann::ordered_json*, std::less<>> dynamic_anchors = {};
  };

  // What a JSON pointer leads to; null if nothing.
  const nlohmann::ordered_json* Pointed(const nlohmann::ordered_json& from, std::string_view pointer) const;
  const nlohmann::ordered_json& Found(const nlohmann::ordered_json& schema, const std::string& text) const;
  void Collect(const nlohmann::ordered_json& value, size_t resource, int depth, bool is_schema);
  size_t ResourceOf(const nlohmann::ordered_json& schema) const;

  const nlohmann::ordered_json& root_;
  const bool ref_is_alone_;
  std::vector<Resource> resources_;
  std::map<std::string, size_t, std::less<>> by_uri_;                      // of resources_
  std::unordered_map<const nlohmann::ordered_json*, size_t> resource_of_;  // of each object
  // What references that were asked for lead to, by the resource and the text.
  mutable std::map<std::pair<size_t, std::string>, const nlohmann::ordered_json*> targets_;
};

}  // namespace coppice
