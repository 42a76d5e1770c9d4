// Makes an engine from a model's files, and manages the workspaces and the second model that requests share.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/checksum.h"
#include "base/field_error.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/follow.h"
#include "engine/open_model.h"
#include "grammar/token_texts.h"
#include "model/synthetic.h"
#include "text/jinja/chat_template.h"

namespace coppice {

Engine::Engine(std::shared_ptr<const TensorStore> store, ModelConfig config,
               std::unique_ptr<Tokenizer> tokenizer, const EngineOptions& options)
    : store_(std::move(store)),
      tokenizer_(std::move(tokenizer)),
      backend_options_{.threads = options.threads,
                       .exact = options.exact,
                       .fast = options.fast,
                       .cache_type = options.cache_type},
      backend_(MakeBackend(options.backend, backend_options_)),
      transformer_(MakeTransformer(store_, std::move(config), backend_.get())),
      calibrations_(*store_, transformer_.config()),
      context_(options.context > 0 ? options.context : transformer_.config().context),
      cold_options_(options.cold),
      tile_rows_(std::max<int64_t>(options.tile_rows, 1)),
      packed_weights_(options.packed_bytes),
      comm_(options.comm != nullptr && options.comm->size() > 1 ? options.comm : nullptr) {
  if (comm_ != nullptr && options.documents)
    throw Error(
        "the document cache does not go with several processes: only one of them would have the states");
  if (comm_ != nullptr && backend_->memory() != nullptr)
    throw Error("the {} backend does not go with several processes: they send each other host memory",
                backend_->name());
  if (options.packed_bytes > 0 && backend_->memory() != nullptr)
    throw FieldError("packed_ram", ": the {} backend keeps no packed weights for later prompts",
                     backend_->name());
  if (options.comm != nullptr && options.comm->size() > 1 && transformer_.config().shape.HasStates()) {
    throw Error("{}: one process alone can read for a model whose layers carry states, and there are {}",
                store_->path(), options.comm->size());
  }
  CheckCacheType(transformer_.config().shape, backend_->cache_dtype());
  if (context_ > limits::kMaxContext)
    throw FieldError("context", " {}: at most {}", context_, limits::kMaxContext);
  if (options.chat_template) {
    if (!tokenizer_) throw Error("{}: has no tokenizer that a chat template could be for", store_->path());
    ChatTemplate(*options.chat_template);  // throws if it is none
    tokenizer_->SetChatTemplate(*options.chat_template);
  }
  if (options.time_operations) {
    auto timed = std::make_unique<TimedBackend>(std::move(backend_));
    timed_ = timed.get();
    backend_ = std::move(timed);
  }
  if (options.check_tensors) {
    for (const TensorFinding& finding : CheckTensors(*store_)) {
      if (!finding.finite) throw Error("{}: {}", store_->path(), finding.text);
    }
  }
  // No cache where a prompt's keys depend on its length: none could be taken over.
  if (!options.documents || KeysDependOnLength(transformer_.config(), context_)) return;
  documents_ =
      std::make_unique<DocumentCache>(*options.documents, [this, exact = options.exact, fast = options.fast] {
        const ModelConfig& model = transformer_.config();
        std::vector<int64_t> key_widths;
        std::vector<RecurrentShape> states;
        for (const LayerShape& layer : model.shape.layers) {
          key_widths.push_back(layer.key_width());
          states.push_back(layer.recurrent);
        }
        return PrefixFormat{.fingerprint = FingerprintOf(*store_, model, *backend_, exact, fast),
                            .cache_type = backend_->cache_dtype(),
                            .key_widths = std::move(key_widths),
                            .states = std::move(states),
                            .hidden = model.shape.hidden,
                            .vocab = model.shape.vocab};
      });
}

std::unique_ptr<Backend> Engine::NewBackend() const {
  return MakeBackend(std::string(backend_->name()), backend_options_);
}

// Makes an engine in every process. Process 0 tells the others; what they hold must be the same.
template <typename Make>
std::unique_ptr<Engine> Engine::Together(const std::string& path, bool shape, const EngineOptions& options,
                                         Make&& make) {
  Comm* const comm = options.comm;
  if (comm == nullptr || comm->size() == 1) return make();
  int64_t id = -1;
  if (comm->leads()) id = SendLoad(*comm, path, shape, options);
  std::unique_ptr<Engine> engine;
  Fingerprint print;
  std::string error;
  std::exception_ptr own;
  try {
    engine = make();
    print = FingerprintOf(*engine->store_, engine->transformer_.config(), *engine->backend_, options.exact,
                          options.fast);
  } catch (const std::exception& failed) {
    engine.reset();
    error = failed.what();
    own = std::current_exception();
  }
  try {
    AgreeOnLoad(*comm, error, print);
  } catch (const Error&) {
    if (comm->leads()) SendUnload(*comm, id);
    if (own) std::rethrow_exception(own);
    throw;
  }
  engine->id_ = id;
  return engine;
}

Engine::~Engine() {
  if (comm_ != nullptr && id_ >= 0) SendUnload(*comm_, id_);
}

std::unique_ptr<Engine> Engine::Load(const std::string& path, const EngineOptions& options) {
  return Together(path, false, options, [&] {
    OpenedModel model = OpenModel(path);
    return std::unique_ptr<Engine>(
        new Engine(std::move(model.store), std::move(model.config), std::move(model.tokenizer), options));
  });
}

std::unique_ptr<Engine> Engine::FromShape(const std::string& shape, const EngineOptions& options) {
  return Together(shape, true, options, [&] {
    SyntheticModel model = ParseShape(shape);
    ModelConfig config = model.config;
    return std::unique_ptr<Engine>(
        new Engine(MakeSyntheticStore(model), std::move(config), nullptr, options));
  });
}

std::shared_ptr<TextScorer> Engine::Scorer(const std::string& path) {
  if (!scorer_ || scorer_->path() != path) {
    scorer_.reset();  // before loading, so that two second models are never in memory at once
    scorer_ = std::make_shared<TextScorer>(path, tile_rows_, backend_.get());
  }
  return scorer_;
}

std::shared_ptr<DraftReader> Engine::DraftOf(const std::string& path) {
  if (!draft_ || draft_->path() != path) {
    draft_.reset();  // as in Scorer
    draft_ = std::make_shared<DraftReader>(path, *tokenizer_, tile_rows_, backend_.get());
  }
  return draft_;
}

std::shared_ptr<WordClassifier> Engine::WordsOf(const std::string& path) {
  if (!words_ || words_->path() != path) {
    words_.reset();  // as in Scorer
    words_ = std::make_shared<WordClassifier>(path);
  }
  return words_;
}

std::shared_ptr<const TokenTexts> Engine::token_texts() {
  if (!tokenizer_) throw Error("a grammar needs the model's tokenizer, and its files have none");
  const std::lock_guard lock(mutex_);
  if (!token_texts_) token_texts_ = std::make_shared<const TokenTexts>(*tokenizer_);
  return token_texts_;
}

std::unique_ptr<Workspace> Engine::TakeWorkspace() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  auto workspace = std::make_unique<Workspace>(transformer_.config().shape, tile_rows_, backend_->memory());
  workspace->kept.lasting = &packed_weights_;
  return workspace;
}

void Engine::CheckFits(const RunBytes& bytes) {
  try {
    return backend_->CheckFits(bytes);
  } catch (const Error&) {
    // The workspaces that earlier requests left take memory too.
    std::vector<std::unique_ptr<Workspace>> unused;
    const std::lock_guard lock(mutex_);
    unused.swap(idle_);
    if (unused.empty()) throw;
  }
  backend_->CheckFits(bytes);
}

void Engine::PutBack(std::unique_ptr<Workspace> workspace) {
  workspace->kept.steps.SetRoom(0);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
}

}  // namespace coppice
