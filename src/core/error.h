// The exceptions that cross every layer. Each message names what was given, what was expected
// and where. Knows nothing of Python: bindings/ maps each class to its twin in lily.errors.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lily {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller passed something that no state of the engine could accept.
class InvalidInput : public Error {
 public:
  using Error::Error;
};

// A checkpoint is damaged, incomplete, or of a kind that Lily does not run.
class ModelError : public Error {
 public:
  using Error::Error;
};

// A plan or an allocation does not fit into memory.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// The device failed; the session that ran is unusable past its last good token.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A prompt or a generation does not fit into the session's context.
class ContextFull : public Error {
 public:
  using Error::Error;
};

// The caller asked to stop; the session is left at its last complete step or chunk.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// 1234567 -> "1,234,567": numbers in messages are meant for people.
std::string grouped(uint64_t value);

// 1234567890 -> "1.23 GB" (powers of ten, as memory and disk vendors count).
std::string human_bytes(uint64_t bytes);

}  // namespace lily
