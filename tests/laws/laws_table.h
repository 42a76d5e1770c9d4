// One row per pruning method: settings under which the laws of pruning are tried (tests/laws/laws_test.cpp).
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "policies/methods/sdtp_test_file.h"
#include "policies/policy.h"
#include "test_files.h"

namespace coppice {

struct MethodEntry {
  std::string name;
  std::vector<std::string> identity = {};  // settings that keep everything
  std::string active;  // prunes `tokens` tokens of the tiny model, from layer 0 or later on
  // Layers below this one are untouched by `active`, and so are the rows that this layer itself still holds.
  // -1: every layer's rows are touched.
  int first_layer = 0;
  int64_t tokens = 200;                   // no multiple of a block or of a tile
  std::vector<std::string> cheaper = {};  // from dense to much pruned; empty where prefill costs the same
  double cheapest = 0.7;                  // the last of `cheaper` costs less than this share of dense
  bool ties = false;  // where all scores of a layer tie, nothing but early positions and the end is kept
  LayerPoint shared =
      {};                 // up to here `active` lets a prompt take over states of an earlier one; {}: nothing
  std::string bare = {};  // what the method is called with at least; empty: its name
  bool counts = true;     // its settings say how much stays, and scores only which
  bool budget = true;     // its settings are shares or numbers of tokens, not positions
  bool planned = true;    // a dry run counts it without a second model
  bool split = true;      // several processes may prefill under `active`
  // Settings that prune 256 tokens and promise that the last `question_tokens` stay; empty: `active`.
  std::string question = {};
  int64_t question_tokens = 1;
};

// Predictors for layers 2 and 4 of the tiny model (hidden size 64), irregular but always the same.
inline const std::string& TinySdtpFile() {
  static const TempFolder folder;  // of this process: a test program runs for several ISAs at once
  static const std::string path = folder.Write("laws-sdtp.safetensors", SdtpTestFile({2, 4}, 64, 16).Bytes());
  return path;
}

inline void PrintTo(const MethodEntry& entry, std::ostream* out) { *out << entry.name; }

inline std::vector<MethodEntry> LawEntries() {
  const std::string sdtp = "sdtp:file=" + TinySdtpFile();
  return {
      {.name = "lazyllm",
       .identity = {"lazyllm:layers=2/4,keep=1,min=0",
                    "lazyllm:layers=1/2/3/4/5,keep=1,strict_memory=0,min=0",
                    "lazyllm:layers=2/4,keep=1,queries=8,ask=question,pool=max,skip_sink=4,widen=3,min=0",
                    "lazyllm:layers=2/4,keep=1/1,queries=4,sum=2,whole=sentence,min=0"},
       .active = "lazyllm:layers=2/4,keep=0.5,min=0",
       .first_layer = 2,
       .cheaper = {"lazyllm:layers=2/4,keep=0.9,min=0", "lazyllm:layers=2/4,keep=0.6,min=0",
                   "lazyllm:layers=2/4,keep=0.3,min=0", "lazyllm:layers=1/2,keep=0.2,min=0"},
       .ties = true,
       .shared = {2, false}},
      {.name = "ftp",
       .identity = {"ftp:eta=1,min=0", "ftp:eta=0.5,dense=6,min=0", "ftp:eta=0.5,first=200,min=0",
                    "ftp:eta=0.5,last=200,min=0", "ftp:eta=1,choose=random,min=0",
                    "ftp:eta=1,fill=mean,pool=max,skip_sink=4,widen=3,min=0",
                    "ftp:eta=0.5,dense=6,sum=3,whole=sentence,min=0", "ftp:eta=1,sum=2,min=0",
                    "ftp:eta=0.5,dense=6,fill=mean,ask=question,min=0"},
       .active = "ftp:eta=0.5,dense=2,first=10,last=8,min=0",
       .first_layer = 2,
       .cheaper = {"ftp:eta=1,dense=2,first=10,last=8,min=0", "ftp:eta=0.9,dense=2,first=10,last=8,min=0",
                   "ftp:eta=0.7,dense=2,first=10,last=8,min=0", "ftp:eta=0.5,dense=2,first=10,last=8,min=0",
                   "ftp:eta=0.2,dense=2,first=10,last=8,min=0", "ftp:eta=0.2,dense=1,first=0,last=1,min=0"},
       .ties = true,
       .shared = {2, true},
       .counts = false,
       .question = "ftp:eta=0.2,dense=1,min=0",
       .question_tokens = 50},
      {.name = "sdtp",
       .identity = {sdtp + ",r=1,min=0", sdtp + ",local=1,min=0"},
       .active = sdtp + ",r=0.6,min=0",
       .first_layer = 2,
       .cheaper = {sdtp + ",r=1,min=0", sdtp + ",r=0.8,min=0", sdtp + ",r=0.5,min=0", sdtp + ",r=0.2,min=0"},
       .shared = {2, false},
       .bare = sdtp,
       .question = sdtp + ",r=0.4,min=0",
       .question_tokens = 26},
      {.name = "sliminfer",
       .identity = {"sliminfer:layers=2/4,keep=1,min=0",
                    "sliminfer:layers=2/4,keep=200/200,revive=none,min=0",
                    "sliminfer:layers=1/2/3/4/5,keep=100000,min=0",
                    "sliminfer:layers=2/4,keep=1,score=mass,pool=max,skip_sink=4,widen=3,min=0",
                    "sliminfer:layers=2/4,keep=1,score=mass,sum=2,whole=sentence,min=0"},
       .active =
           "sliminfer:layers=2/4,keep=112/64,block=16,last=1,unit=8,window=4,gamma=1,revive_cap=2,min=0",
       .first_layer = 2,
       .cheaper = {"sliminfer:layers=2/4,keep=200/200,block=16,last=1,min=0",
                   "sliminfer:layers=2/4,keep=160/112,block=16,last=1,min=0",
                   "sliminfer:layers=2/4,keep=112/112,block=16,last=1,min=0",
                   "sliminfer:layers=2/4,keep=112/64,block=16,last=1,min=0",
                   "sliminfer:layers=2/4,keep=48/32,block=16,last=1,min=0",
                   "sliminfer:layers=1/2,keep=48/32,block=16,last=1,min=0"},
       .ties = true,
       .shared = {1, true},
       .question = "sliminfer:layers=2/4,keep=192/128,decode_keep=128,gamma=2,min=0",
       .question_tokens = 64},
      {.name = "coppice",
       .identity = {"coppice:layers=2/4,keep=1,min=0", "coppice:layers=1/2/3/4/5,keep=1,revive_mass=0,min=0",
                    "coppice:layers=2/4,keep=1,queries=8/1,pool=max/mean,widen=4/0,revive=none,min=0",
                    "coppice:layers=2/4,keep=1,sum=2/3,whole=sentence/none,min=0"},
       .active = "coppice:layers=2/4,keep=0.5/0.25,queries=8/1,pool=max/mean,widen=2,floor=0,last=8,"
                 "revive_mass=0,revive_cap=16,min=0",
       .first_layer = 2,
       .cheaper = {"coppice:layers=2/4,keep=0.9,widen=16/8,floor=0,last=8,min=0",
                   "coppice:layers=2/4,keep=0.6/0.5,widen=16/8,floor=0,last=8,min=0",
                   "coppice:layers=2/4,keep=0.4/0.1,widen=16/8,floor=0,last=8,min=0",
                   "coppice:layers=1/2,keep=0.2/0.1,widen=16/8,floor=0,last=8,min=0",
                   "coppice:layers=1/2,keep=0.2/0.1,mass=0.5/0.2,widen=16/8,floor=0,last=8,min=0"},
       .ties = true,
       .shared = {2, false},
       .question = "coppice:layers=2/4,keep=0.4/0.1,floor=0,min=0",
       .question_tokens = 64},
      {.name = "random",
       .identity = {"random:keep=1,min=0", "random:layers=2/4,keep=1,min=0"},
       .active = "random:layers=2/4,keep=0.5,min=0",
       .first_layer = 2,
       .cheaper = {"random:keep=1,min=0", "random:keep=0.8,min=0", "random:keep=0.4,min=0"},
       .shared = {2, false}},
      {.name = "selective",
       .identity = {"selective:model=tiny,keep=1,min=0", "selective:model=tiny,keep=1,unit=token,min=0"},
       .active = "selective:model=tiny,keep=0.5,positions=original,min=0",
       .first_layer = -1,
       .cheaper = {"selective:model=tiny,keep=1,min=0", "selective:model=tiny,keep=0.8,unit=token,min=0",
                   "selective:model=tiny,keep=0.4,unit=token,min=0"},
       .bare = "selective:model=tiny",
       .counts = false},
      {.name = "llmlingua2",
       .identity = {"llmlingua2:model=tiny,keep=1,min=0"},
       .active = "llmlingua2:model=tiny,keep=0.5,positions=original,min=0",
       .first_layer = -1,
       .cheaper = {"llmlingua2:model=tiny,keep=1,min=0", "llmlingua2:model=tiny,keep=0.8,min=0",
                   "llmlingua2:model=tiny,keep=0.4,min=0"},
       .bare = "llmlingua2:model=tiny",
       .counts = false},
      {.name = "static",
       .identity = {"static:layer=2,keep=1,min=0"},
       .active = "static:layer=2,keep=0.5,min=0",
       .first_layer = 2,
       .cheaper = {"static:layer=2,keep=1,min=0", "static:layer=2,keep=0.5,min=0",
                   "static:layer=2,keep=0.2,min=0"},
       .ties = true,
       .shared = {2, false}},
      {.name = "pyramidinfer",
       .identity = {"pyramidinfer:r=1,min=0", "pyramidinfer:r=0.5,min_context=1000,min=0"},
       .active = "pyramidinfer:r=0.5,recent=0.1,min_context=8,min=0",
       .first_layer = 1,
       .cheaper = {"pyramidinfer:r=1,min=0", "pyramidinfer:r=0.8,recent=0.1,min_context=8,min=0",
                   "pyramidinfer:r=0.01,recent=0.02,min_context=1,min=0"},
       .cheapest = 0.85,
       .shared = {2, false}},
      {.name = "uniprefill",
       .identity = {"uniprefill:layers=1/3,p=1,min=0", "uniprefill:layers=1/3,p=0.5,last=200,min=0",
                    "uniprefill:layers=1/3,p=0.1,block=200,sink=10,last=10,min=0"},
       .active = "uniprefill:layers=1/3,p=0.5,block=8,sink=8,last=8,min=0",
       .first_layer = 2,
       .cheaper = {"uniprefill:layers=1/3,p=1,min=0",
                   "uniprefill:layers=1/3,p=0.8,block=8,sink=8,last=8,min=0",
                   "uniprefill:layers=1/3,p=0.5,block=8,sink=8,last=8,min=0",
                   "uniprefill:layers=1/3,p=0.2,block=8,sink=8,last=8,min=0"},
       .ties = true,
       .shared = {1, true},
       .counts = false,
       .question = "uniprefill:layers=1/3,p=0.2,block=8,sink=8,last=64,min=0",
       .question_tokens = 64},
      {.name = "fastkv",
       .identity = {"fastkv:layer=2,keep=1,cache=1,min=0", "fastkv:layer=2,keep=200,cache=1000,min=0"},
       .active = "fastkv:layer=2,keep=0.4,cache=0.2,min=0",
       .first_layer = 3,
       .cheaper = {"fastkv:layer=2,keep=1,cache=0.2,min=0", "fastkv:layer=2,keep=0.6,cache=0.2,min=0",
                   "fastkv:layer=2,keep=0.2,cache=0.1,min=0"},
       .shared = {3, false}},
      {.name = "spts",
       .identity = {"spts:begin=2,layers=3/4,keep=200,drop=50,min=0",
                    "spts:begin=0,layers=1/3,keep=1000,min=0"},
       .active = "spts:begin=2,layers=2/3,keep=90/60,drop=40,min=0",
       .first_layer = 2,
       .cheaper = {"spts:begin=2,layers=2/3,keep=200,drop=0,min=0",
                   "spts:begin=2,layers=2/3,keep=150/120,drop=10,min=0",
                   "spts:begin=2,layers=2/3,keep=90/60,drop=40,min=0",
                   "spts:begin=1,layers=1/2,keep=30/20,drop=150,min=0"},
       .ties = true,
       .shared = {2, false},
       .split = false},
      {.name = "streamingllm",
       .identity = {"streamingllm:sink=4,recent=1000,min=0"},
       .active = "streamingllm:sink=4,recent=60,min=0",
       .first_layer = -1,
       .shared = {6, false}},
      {.name = "h2o",
       .identity = {"h2o:heavy=300,recent=300,min=0"},
       .active = "h2o:heavy=0.2,recent=0.2,min=0",
       .first_layer = 5,
       .split = false},
      {.name = "snapkv",
       .identity = {"snapkv:cap=1000,min=0"},
       .active = "snapkv:cap=64,window=8,min=0",
       .first_layer = 5,
       .shared = {6, false}},
      {.name = "quest",
       .identity = {"quest:budget=100000,min=0"},
       .active = "quest:budget=64,dense=2,min=0",
       .first_layer = 5,
       .shared = {6, false}},
      {.name = "minference",
       .identity = {"minference:vertical=1000,slash=1000,min=0",
                    "minference:pattern=a_shape,first=1000,min=0",
                    "minference:pattern=block_sparse,blocks=1000,min=0"},
       .active = "minference:vertical=30,slash=100,min=0",
       .first_layer = 0,
       .tokens = 500,
       .counts = false},
      {.name = "flexprefill",
       .identity = {"flexprefill:gamma=1,min=0", "flexprefill:gamma=0.5,min_budget=1000,min=0"},
       .active = "flexprefill:gamma=0.3,min_budget=16,block=16,min=0",
       .first_layer = 0,
       .tokens = 500,
       .counts = false},
      {.name = "xattention",
       .identity = {"xattention:threshold=1,min=0"},
       .active = "xattention:threshold=0.3,stride=4,block=16,min=0",
       .first_layer = 0,
       .tokens = 500,
       .counts = false},
      {.name = "flashprefill",
       .identity = {"flashprefill:alpha=0,min=0", "flashprefill:alpha=1,window=1000,min=0",
                    "flashprefill:alpha=1,sink=1000,min=0", "flashprefill:alpha=1,last=1000,min=0"},
       .active = "flashprefill:alpha=1,block=16,sink=1,window=1,min=0",
       .first_layer = 0,
       .tokens = 500,
       .counts = false},
      {.name = "specprefill",
       .identity = {"specprefill:draft=tiny,keep=1,min=0"},
       .active = "specprefill:draft=tiny,keep=0.5,chunk=8,min=0",
       .first_layer = -1,
       .cheaper = {"specprefill:draft=tiny,keep=1,min=0", "specprefill:draft=tiny,keep=0.8,chunk=8,min=0",
                   "specprefill:draft=tiny,keep=0.4,chunk=4,min=0"},
       .bare = "specprefill:draft=tiny",
       .planned = false},
      {.name = "gemfilter",
       .identity = {"gemfilter:layer=2,keep=1,min=0", "gemfilter:layer=5,keep=200,positions=original,min=0"},
       .active = "gemfilter:layer=2,keep=0.4,positions=original,min=0",
       .first_layer = -1,
       .cheaper = {"gemfilter:layer=2,keep=1,min=0", "gemfilter:layer=2,keep=0.6,min=0",
                   "gemfilter:layer=2,keep=0.2,positions=original,min=0",
                   "gemfilter:layer=1,keep=0.1,min=0"}},
      {.name = "drop",
       .identity = {"drop:span=5000/6000,layer=2,min=0", "drop:span=199/200,layer=2,min=0"},
       .active = "drop:span=40/140,layer=2,min=0",
       .first_layer = 2,
       .cheaper = {"drop:span=0/1,layer=2,min=0", "drop:span=0/100,layer=2,min=0",
                   "drop:span=0/190,layer=2,min=0", "drop:span=0/190,layer=1,min=0"},
       .shared = {2, false},
       .budget = false,
       .question = "drop:span=40/140,layer=2,min=0",
       .question_tokens = 64},
  };
}

inline std::string ActiveOf(const std::vector<MethodEntry>& entries, std::string_view name) {
  for (const MethodEntry& entry : entries) {
    if (entry.name == name) return entry.active;
  }
  return "";
}

}  // namespace coppice
