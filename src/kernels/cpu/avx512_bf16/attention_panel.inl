// The scratch of the attention kernels in this folder, and one panel's part of it and of a state. Included
// before them.
//
// With values in 8 bits, one panel of rows after the other goes through all keys of a call, so that its
// queries, scores, weights and outputs stay in L1: 30 KiB with heads of 64.

struct PairBuffers {
  uint16_t* keys;     // [kKeyTile][dim]: copies, if the cache cannot be read in whole tiles
  uint32_t* values;   // [kKeyTile / 2][dim]: keys 2 j and 2 j + 1
  uint16_t* copies;   // [kKeyTile][dim]: the same for values
  uint32_t* weights;  // [kKeyTile / 2][kPanel]
  float* tops;        // [kPanel] maximum score of the tile
  float* keep;        // [kPanel] QuadState, for values in 8 bits
  float* largest;     // [kPanel] likewise
};

inline PairBuffers BuffersOf(const Rows& rows) {
  uint32_t* values = reinterpret_cast<uint32_t*>(rows.values);
  float* tops = rows.more + kKeyTile / 2 * kPanel;
  return {reinterpret_cast<uint16_t*>(rows.keys),
          values,
          reinterpret_cast<uint16_t*>(values + kKeyTile / 2 * rows.dim),
          reinterpret_cast<uint32_t*>(rows.more),
          tops,
          tops + kPanel,
          tops + 2 * kPanel};
}

// One panel's part of Rows and of a State.
struct Panel {
  int index;
  int vectors;        // in use
  int64_t dim;        // padded head_dim
  uint32_t* queries;  // [dim / 2][kPanel] pairs or [dim / 4][kPanel] quads of channels, 0 in unused lanes
  float* scores;
  float* maxima;
  float* sums;
  float* output;
};

inline Panel PanelOf(const AttentionTile& tile, const Rows& rows, const State& s, int index) {
  return {index,
          PanelVectors(tile, index),
          rows.dim,
          reinterpret_cast<uint32_t*>(rows.queries + index * kPanel * rows.dim),
          rows.scores + index * kPanel * kKeyTile,
          s.maxima + index * kPanel,
          s.sums + index * kPanel,
          s.output + index * kPanel * rows.dim};
}
