// Pending work of the emulated device.
//
// Work follows earlier work of its stream and the events that its stream waits for, and nothing else. It is executed when
// the host waits for it. Of all ready work, the latest is executed first, or a random one, or one that follows the work just
// executed, so that a stream runs ahead of others. If a stream does not wait for another one as it should, its input is
// therefore missing. Work of the null stream follows that of blocking streams, and vice versa.
#pragma once
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

namespace streams {
struct Work {
  std::function<void()> happen;
  std::vector<std::shared_ptr<Work>> after;
  bool is_done;
  std::chrono::steady_clock::time_point when;
};
using Shared = std::shared_ptr<Work>;
// Work in the order of submission.
struct Graph {
  std::vector<Shared> works;
  unsigned number;
};
struct Stream {
  bool is_blocking;
  // Work that the next work follows.
  std::vector<Shared> last;
  // During capture: the graph, and the previous value of `last`.
  Graph *captured;
  std::vector<Shared> outside;
};
struct Event {
  Shared work;
  // Number of the graph of the capture.
  unsigned of;
};

// Maximum amount of pending work; more is executed at once, as on a real device.
constexpr size_t MOST_WAITING = 512;
inline std::vector<Shared> waiting;
inline Stream null_stream{true};
inline std::set<Stream *> others;
inline Graph *captured;
inline unsigned graphs;
inline unsigned long long draws = 1;

// Whether a file in the test's folder changes what the device does.
inline bool is_set(const char *word) {
  const char *folder = getenv("OPCOLLECT_TEST_EMULATOR");
  return folder && !access((std::string(folder) + "/" + word).c_str(), F_OK);
}

inline Stream *of(CUstream stream) { return stream ? (Stream *)stream : &null_stream; }
inline void append(std::vector<Shared> &to, const std::vector<Shared> &from) { to.insert(to.end(), from.begin(), from.end()); }

// Returns these and all of their predecessors.
inline std::set<const Work *> before(const std::vector<Shared> &last) {
  std::set<const Work *> found;
  std::vector<const Work *> left;
  for (auto &work : last) left.push_back(work.get());
  while (!left.empty()) {
    const Work *work = left.back();
    left.pop_back();
    if (!work->is_done && found.insert(work).second)
      for (auto &other : work->after) left.push_back(other.get());
  }
  return found;
}
inline bool is_ready(const Shared &work) {
  return std::all_of(work->after.begin(), work->after.end(), [](auto &other) { return other->is_done; });
}
// Selects the next work among the ready ones.
inline size_t choose(const std::vector<Shared> &left, const Shared &done) {
  bool is_drawn = is_set("drawn-order"), is_ahead = is_set("ahead-order");
  std::vector<size_t> ready;
  for (size_t i = left.size(); i-- > 0 && (is_drawn || is_ahead || ready.empty());)
    if (is_ready(left[i])) ready.push_back(i);
  draws = draws * 6364136223846793005 + 1442695040888963407;
  if (is_drawn) return ready.at((draws >> 33) % ready.size());
  for (size_t i : ready)
    if (is_ahead && std::count(left[i]->after.begin(), left[i]->after.end(), done)) return i;
  return is_ahead ? ready.back() : ready.at(0);
}
// Executes these and their predecessors only.
inline void wait_for(const std::vector<Shared> &last) {
  std::set<const Work *> wanted = before(last);
  std::vector<Shared> left, kept;
  for (auto &work : waiting) (wanted.count(work.get()) ? left : kept).push_back(work);
  waiting = kept;
  for (Shared work; !left.empty();) {
    size_t next = choose(left, work);
    work = left[next];
    left.erase(left.begin() + next);
    if (work->happen) work->happen();
    work->is_done = true;
    work->when = std::chrono::steady_clock::now();
    work->after.clear();
  }
}
inline void wait_for_all() { wait_for(std::vector<Shared>(waiting)); }
inline void wait_for_no_more_than_fit() {
  if (waiting.size() > MOST_WAITING) wait_for_all();
}

// Submits work to a stream.
inline Shared ask(Stream *stream, std::function<void()> happen) {
  Shared work(new Work{happen, stream->last});
  if (stream->captured) {
    stream->captured->works.push_back(work);
  } else {
    if (stream == &null_stream)
      for (Stream *other : others)
        if (other->is_blocking && !other->captured) append(work->after, other->last);
    if (stream != &null_stream && stream->is_blocking) append(work->after, null_stream.last);
    waiting.push_back(work);
  }
  stream->last = {work};
  return work;
}
inline void ask_for_graph(Stream *stream, const Graph &graph) {
  Shared begin = ask(stream, nullptr);
  std::vector<Shared> copies;
  for (auto &work : graph.works) {
    Shared copy(new Work{work->happen});
    for (auto &other : work->after) copy->after.push_back(copies[std::find(graph.works.begin(), graph.works.end(), other) - graph.works.begin()]);
    if (copy->after.empty()) copy->after = {begin};
    copies.push_back(copy);
    waiting.push_back(copy);
  }
  append(stream->last, copies);
  ask(stream, nullptr);
}

inline CUresult wait_event(Stream *stream, const Event &event) {
  if (!event.work) return CUDA_SUCCESS;
  if (event.of && (!captured || event.of != captured->number)) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event.of && stream->captured) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (event.of && stream == &null_stream) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (event.of && !stream->captured) {
    stream->captured = captured;
    stream->outside.swap(stream->last);
    stream->last.clear();
  }
  stream->last.push_back(event.work);
  return CUDA_SUCCESS;
}
// The stream that started a capture must follow all captured work.
inline CUresult end_capture(Stream *stream, Graph *&graph) {
  graph = captured;
  std::set<const Work *> joined = before(stream->last);
  for (Stream *other : others) {
    if (!other->captured) continue;
    for (auto &work : other->last)
      if (!joined.count(work.get())) graph = nullptr;
    other->last.swap(other->outside);
    other->outside.clear();
    other->captured = nullptr;
  }
  if (!graph) delete captured;
  captured = nullptr;
  return graph ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}
}  // namespace streams
