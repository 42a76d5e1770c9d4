#include "server/own_share.h"

#include <algorithm>

namespace coppice {

void OwnShare::Book(double own, double elapsed, double share) {
  saved_ = std::min(saved_ + share * elapsed - own, kMostSaved);
  if (saved_ <= 0) slow_ = true;
  if (saved_ >= kMostSaved) slow_ = false;
}

void OwnShare::Forgive() { saved_ = std::max(saved_, kOneTurn); }

double OwnShare::Rest(double share) const { return saved_ > 0 ? 0 : (kOneTurn - saved_) / share; }

void OwnShare::Rested() { saved_ = kOneTurn; }

}  // namespace coppice
