// The memory of a rendering, as the allocator sees it, against the budget of a template.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "base/error.h"
#include "base/limits.h"
#include "text/jinja/chat_template.h"

namespace {

std::atomic<size_t> live_bytes{0};
std::atomic<size_t> peak_bytes{0};

void Release(void* memory) {
  live_bytes -= memory == nullptr ? 0 : malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// Sorts take their room by this one, and give it back by the same delete.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  const size_t live = live_bytes += memory == nullptr ? 0 : malloc_usable_size(memory);
  if (live > peak_bytes) peak_bytes = live;
  return memory;
}
void* operator new(size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }

namespace coppice {
namespace {

struct Hungry {
  const char* name;
  const char* source;
};

TEST(ChatTemplateMemory, PeaksWithinTheBudget) {
  const Hungry cases[] = {
      {"a big output", "{% set s = 'x' * 1000000 %}{% for i in range(60) %}{{ s }}{% endfor %}"},
      {"an output beside values",
       "{% set l = namespace(v=[]) %}{% for i in range(60) %}{% set l.v = l.v + ['x' * 1000000] %}{% endfor "
       "%}"
       "{% for s in l.v %}{{ s }}{% endfor %}"},
      {"captures",
       "{% set s = 'x' * 1000000 %}{% set l = namespace(v=[]) %}{% for j in range(9) %}{% set t %}"
       "{% for i in range(33) %}{{ s }}{% endfor %}{% endset %}{% set l.v = l.v + [t] %}{% endfor %}"},
      {"blocks in blocks",
       "{% macro f(n) %}{{ 'x' * 5000000 }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}"},
      {"a doubling string",
       "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"},
      {"a doubling list",
       "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}"},
      {"JSON", "{% set l = ['y' * 1000] * 100000 %}{{ l | tojson }}"},
      {"a list as text", "{% set l = ['y' * 1000] * 100000 %}{{ l }}"},
      {"a join", "{% set l = ['y' * 1000] * 60000 %}{% set t = l | join('-') %}{{ t }}"},
      {"a replacement", "{% set t = ('x' * 60000).replace('x', 'y' * 1000) %}{{ t }}"},
      {"a slice", "{% set t = ('x' * 12000000)[1:] %}{{ t }}"},
      {"capitals", "{% set t = ('x' * 40000000) | upper %}{{ t }}"},
      {"escapes", "{% set t = ('<' * 20000000) | escape %}{{ t }}"},
      {"words", "{% set t = ('a ' * 30000000).split() %}"},
      {"letters", "{% set t = ('a' * 30000000) | list %}"},
      {"numbers",
       "{% set t = namespace(l=[]) %}{% for i in range(99) %}{% set t.l = t.l + range(99999) | list %}"
       "{% endfor %}"},
      {"a map", "{% set l = ['y' * 10] * 1000000 %}{% set m = l | map('upper') | list %}"},
      {"a selection", "{% set l = [1] * 2000000 %}{% set m = l | select | list %}{% set k = l | sort %}"},
      {"formats", "{% set t = '%s' | format('y' * 60000000) %}{{ t }}"},
      {"dicts",
       "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = n.l + [{'a': i, 'b': 'x' * "
       "9000}] %}"
       "{% endfor %}"},
  };
  const auto limit = static_cast<size_t>(limits::kMaxTemplateMemoryBytes);
  for (const Hungry& hungry : cases) {
    SCOPED_TRACE(hungry.name);
    const ChatTemplate chat(hungry.source);
    const size_t before = live_bytes;
    peak_bytes = before;
    try {
      chat.Render({});
    } catch (const Error&) {
    }
    EXPECT_LE(peak_bytes - before, limit + limit / 4);
    EXPECT_LE(live_bytes, before + 4096) << "left behind";
  }
}

}  // namespace
}  // namespace coppice
