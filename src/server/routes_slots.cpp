// POST /slots/ID?action=save|restore|erase, in llama.cpp's form: saves, restores or erases what the document
// cache holds for the prompt that the slot computed last.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "formats/json.h"
#include "server/named_model.h"
#include "server/server.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

int64_t SlotOf(std::string_view path) {
  path.remove_prefix(std::string_view("/slots/").size());
  int64_t id = -1;
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), id);
  if (error != std::errc() || end != path.data() + path.size() || id < 0) {
    throw HttpError({404, "not_found_error", "the path's end is not the number of a slot"});
  }
  return id;
}

std::string ActionOf(const std::string& query) {
  const std::string given = QueryValue(query, "action");
  for (const char* action : {"save", "restore", "erase"}) {
    if (given == action) return action;
  }
  throw BadField("action", "is not save, restore or erase");
}

// A file name that cannot lead out of its folder.
std::string FileNameOf(const std::string& body) {
  nlohmann::json object;
  try {
    object = ParseJson(body, "request", 1024);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what()});
  }
  if (!object.is_object() || !object.contains("filename") || !object["filename"].is_string()) {
    throw BadField("filename", "is missing, or is no text");
  }
  const auto name = object["filename"].get<std::string>();
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  // Unfinished files end in ".part", and are removed when a server starts.
  if (!plain || name.empty() || name.size() > 128 || name.front() == '.' || name.ends_with(".part")) {
    throw BadField("filename",
                   "is not 1 to 128 of a-z, A-Z, 0-9, '.', '_' and '-', the first of them no '.', the end no "
                   "'.part'");
  }
  return name;
}

// The bytes of the files in a folder, but for the one at `path`, which will be replaced.
int64_t BytesBeside(const std::string& path) {
  namespace fs = std::filesystem;
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(fs::path(path).parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const uintmax_t size = it->path() == path ? 0 : it->file_size(gone);
    if (!gone) bytes += static_cast<int64_t>(std::min<uintmax_t>(size, int64_t{1} << 50));
  }
  return bytes;
}

// The message without the server's folder, which clients must not learn.
std::string WithoutFolder(std::string message, const std::string& path, const std::string& name) {
  for (size_t at = message.find(path); at != std::string::npos; at = message.find(path, at + name.size()))
    message.replace(at, path.size(), name);
  return message;
}

}  // namespace

void Server::ChangeSlot(const HttpRequest& request, const ExchangePtr& exchange) {
  const int64_t id = SlotOf(request.path);
  const SlotPrompt prompt = scheduler_->Prompt(id);
  const uint64_t client = access_.ClientOf(request);
  const std::string action = ActionOf(request.query);
  DocumentCache* documents = engine_->documents();
  if (documents == nullptr) {
    throw HttpError({501, "not_supported_error", "this server keeps no documents"});
  }
  if (action != "restore" && !prompt.tokens.empty() && prompt.owner.key != client) {
    throw HttpError(
        {404, "not_found_error", fmt::format("slot {}: its last prompt is another API key's", id)});
  }
  const auto start = std::chrono::steady_clock::now();
  const auto ms = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  if (action == "erase") {
    return Answer(exchange, {{"id_slot", id}, {"n_erased", documents->Erase(prompt.tokens, prompt.owner)}});
  }
  if (options_.slot_save_path.empty()) {
    throw HttpError({501, "not_supported_error", "this server has no folder for saved slots"});
  }
  const std::string name = FileNameOf(request.body);
  // Each API key has file names of its own.
  const std::string path =
      options_.slot_save_path + "/" + (client == 0 ? name : fmt::format("{:016x}-{}", client, name));
  const RunControl control{.progress = {}, .cancelled = request.cancelled.get()};
  try {
    if (action == "save") {
      const std::lock_guard lock(save_mutex_);
      const DocumentCache::Saved saved = documents->Save(
          prompt.tokens, path, prompt.owner, options_.slot_save_bytes - BytesBeside(path), control);
      return Answer(exchange, {{"id_slot", id},
                               {"filename", name},
                               {"n_saved", saved.tokens},
                               {"n_written", saved.bytes},
                               {"timings", {{"save_ms", ms()}}}});
    }
    const DocumentCache::Saved restored = documents->Restore(path, kNoPoint, client, control);
    Answer(exchange, {{"id_slot", id},
                      {"filename", name},
                      {"n_restored", restored.tokens},
                      {"n_read", restored.bytes},
                      {"timings", {{"restore_ms", ms()}}}});
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", WithoutFolder(error.what(), path, name), "filename"});
  }
}

}  // namespace coppice
