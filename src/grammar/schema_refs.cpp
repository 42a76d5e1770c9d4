#include "grammar/schema_refs.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "grammar/schema_values.h"

namespace coppice {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestReference = 128;
constexpr size_t kMaxUri = 2048;  // bytes
constexpr size_t kMaxResources = 4096;

// Percent-encoded bytes of a fragment.
std::string Decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char low = static_cast<char>(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// RFC 3986, as far as schemas use it: no ".." segments.
std::string Joined(const std::string& base, const std::string& reference) {
  const size_t colon = reference.find(':');
  if (colon != reference.npos && reference.find('/') > colon) return reference;
  if (reference.empty()) return base;
  const size_t scheme = base.find("://");
  const size_t path = scheme == base.npos ? 0 : base.find('/', scheme + 3);
  if (reference.front() == '/') return base.substr(0, std::min(path, base.size())) + reference;
  if (path == base.npos) return base + "/" + reference;
  const size_t slash = base.rfind('/');
  return slash == base.npos || slash < path ? reference : base.substr(0, slash + 1) + reference;
}

std::string TextOf(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found != schema.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

SchemaRefs::SchemaRefs(const Json& root, bool ref_is_alone) : root_(root), ref_is_alone_(ref_is_alone) {
  resources_.push_back({"", &root_});
  Collect(root_, 0, 0, true);
  for (size_t i = 0; i < resources_.size(); ++i) by_uri_.emplace(resources_[i].uri, i);
}

// `is_schema`: the value may be a schema; else it is an object or a list of them.
void SchemaRefs::Collect(const Json& value, size_t resource, int depth, bool is_schema) {
  if (depth > kDeepestReference) return;
  if (value.is_array()) {
    for (const Json& item : value) Collect(item, resource, depth + 1, true);
  }
  if (!value.is_object()) return;
  if (is_schema && !(ref_is_alone_ && value.contains("$ref"))) {
    const std::string id = TextOf(value, "$id");
    if (id.starts_with('#')) {  // an anchor of draft 7
      resources_[resource].anchors.emplace(id.substr(1), &value);
    } else if (!id.empty()) {
      std::string uri = Joined(resources_[resource].uri, id.substr(0, id.find('#')));
      if (uri.size() > kMaxUri || resources_.size() >= kMaxResources)
        throw Error("$id is longer than {} bytes, or one of more than {}", kMaxUri, kMaxResources);
      if (&value == &root_) {
        resources_[0].uri = std::move(uri);
      } else {
        resources_.push_back({std::move(uri), &value});
        resource = resources_.size() - 1;
      }
    }
    if (std::string anchor = TextOf(value, "$anchor"); !anchor.empty())
      resources_[resource].anchors.emplace(std::move(anchor), &value);
    if (std::string anchor = TextOf(value, "$dynamicAnchor"); !anchor.empty()) {
      resources_[resource].anchors.emplace(anchor, &value);
      resources_[resource].dynamic_anchors.emplace(std::move(anchor), &value);
    }
  }
  resource_of_[&value] = resource;
  for (const auto& [key, member] : value.items()) {
    if (is_schema && (key == "enum" || key == "const" || key == "default" || key == "examples")) continue;
    const bool names =
        is_schema && (key == "properties" || key == "patternProperties" || key == "$defs" ||
                      key == "definitions" || key == "dependentSchemas" || key == "dependencies");
    Collect(member, resource, depth + 1, !names);
  }
}

const Json* SchemaRefs::Pointed(const Json& from, std::string_view pointer) const {
  const Json* here = &from;
  while (!pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string name(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    for (size_t at = name.find('~'); at != name.npos; at = name.find('~', at + 1)) {
      const char kind = at + 1 < name.size() ? name[at + 1] : ' ';
      if (kind != '0' && kind != '1') return nullptr;
      name.replace(at, 2, kind == '0' ? "~" : "/");
    }
    if (here->is_object()) {
      const auto found = here->find(name);
      if (found == here->end()) return nullptr;
      here = &*found;
      continue;
    }
    size_t number = 0;
    const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_number = !name.empty() && error == std::errc() && last == name.data() + name.size() &&
                           (name == "0" || name.front() != '0');
    if (!here->is_array() || !is_number || number >= here->size()) return nullptr;
    here = &(*here)[number];
  }
  return here;
}

size_t SchemaRefs::ResourceOf(const Json& schema) const {
  const auto found = resource_of_.find(&schema);
  return found == resource_of_.end() ? 0 : found->second;
}

const Json& SchemaRefs::Target(const Json& schema, const Json& reference) const {
  if (!reference.is_string()) throw Error("$ref {} is not a text", ShownValue{reference});
  const auto& text = reference.get_ref<const std::string&>();
  const auto [known, is_new] = targets_.emplace(std::pair(ResourceOf(schema), text), nullptr);
  if (is_new || known->second == nullptr) known->second = &Found(schema, text);
  return *known->second;
}

const Json& SchemaRefs::Found(const Json& schema, const std::string& text) const {
  const size_t hash = std::min(text.find('#'), text.size());
  const Resource* resource = &resources_[ResourceOf(schema)];
  if (hash > 0) {
    const auto found = by_uri_.find(Joined(resource->uri, text.substr(0, hash)));
    if (found == by_uri_.end())
      throw Error("$ref {}: only references within the schema (#/...) are supported", ShownValue{Json(text)});
    resource = &resources_[found->second];
  }
  const std::string fragment = Decoded(std::string_view(text).substr(std::min(hash + 1, text.size())));
  if (fragment.empty()) return *resource->root;
  if (fragment.front() != '/') {
    const auto anchor = resource->anchors.find(fragment);
    if (anchor == resource->anchors.end()) throw Error("$ref \"{}\" refers to nothing", text.substr(0, 100));
    return *anchor->second;
  }
  const Json* target = Pointed(*resource->root, fragment);
  if (target == nullptr) throw Error("$ref \"{}\" refers to nothing", text.substr(0, 100));
  return *target;
}

const Json& SchemaRefs::DynamicTarget(const Json& schema, const Json& reference,
                                      const std::vector<const Json*>& scope) const {
  const Json& target = Target(schema, reference);
  const std::string text = reference;
  const std::string anchor = text.substr(std::min(text.find('#'), text.size() - 1) + 1);
  const auto& here = resources_[ResourceOf(target)].dynamic_anchors;
  if (const auto found = here.find(anchor); found == here.end() || found->second != &target) return target;
  for (const Json* outer : scope) {
    const auto& anchors = resources_[ResourceOf(*outer)].dynamic_anchors;
    if (const auto found = anchors.find(anchor); found != anchors.end()) return *found->second;
  }
  return target;
}

}  // namespace coppice
