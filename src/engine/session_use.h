// Inside engine only: the scope in which one thread uses a session.
#pragma once

#include "core/error.h"
#include "engine/session.h"

namespace lily {

class Session::Use {
 public:
  explicit Use(Session& session) : session_(session) {
    std::lock_guard lock(session_.use_mutex_);
    if (session_.closing_) throw InvalidInput("the session is closed");
    if (session_.in_use_) {
      throw InvalidInput(
          "the session is in use by another thread: one thread at a time, or one session each");
    }
    session_.in_use_ = true;
    session_.user_ = std::this_thread::get_id();
  }
  ~Use() {
    {
      std::lock_guard lock(session_.use_mutex_);
      session_.in_use_ = false;
      // Closed from inside: nobody waits who would free.
      if (session_.closing_) session_.free_memory();
    }
    session_.use_ended_.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Session& session_;
};

}  // namespace lily
