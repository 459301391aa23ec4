// The simulated Foundation: pools, strings, arrays, errors, URLs, and what the process says of the
// machine. Knows nothing of Metal.
#include <cstring>

#include "objects.h"
#include "state.h"

namespace lily::simulated {
namespace {

struct AutoreleasePool : Object {};
struct ProcessInfo : Object {};
struct OsVersion {
  intptr_t major, minor, patch;
};

void add_pools() {
  add(
      "+NSAutoreleasePool", "alloc", +[](Object*, SEL) {
        return static_cast<Object*>(make<AutoreleasePool>("NSAutoreleasePool"));
      });
  add(
      "NSAutoreleasePool", "init", +[](Object* self, SEL) {
        begin_pool();
        return self;
      });
  add(
      "NSAutoreleasePool", "drain", +[](Object* self, SEL) {
        end_pool();
        release(self);
      });
}

void add_process() {
  add(
      "+NSProcessInfo", "processInfo", +[](Object*, SEL) {
        static auto* info = make<ProcessInfo>("NSProcessInfo");
        return static_cast<Object*>(info);
      });
  add(
      "NSProcessInfo", "thermalState",
      +[](Object*, SEL) -> intptr_t { return settings().thermal_state; });
  add(
      "NSProcessInfo", "operatingSystemVersionString", +[](Object*, SEL) {
        return make_string("Version " + std::to_string(settings().os_major) + ".1 (Build 1A1)");
      });
  add(
      "NSProcessInfo", "operatingSystemVersion",
      +[](Object*, SEL) { return OsVersion{settings().os_major, 1, 0}; });
}

}  // namespace

String* make_string(const std::string& text) {
  auto* made = make<String>("NSString");
  made->text = text;
  return made_autoreleased(made);
}

Error* make_error(const std::string& text, intptr_t code) {
  auto* made = make<Error>("NSError");
  made->text = text;
  made->code = code;
  return made_autoreleased(made);
}

void add_foundation() {
  add_pools();
  add_process();
  add(
      "+NSString", "stringWithCString:encoding:", +[](Object*, SEL, const char* text, uintptr_t) {
        return make_string(text);
      });
  add("NSString", "UTF8String", +[](String* self, SEL) { return self->text.c_str(); });
  add("NSError", "localizedDescription", +[](Error* self, SEL) { return make_string(self->text); });
  add("NSError", "code", +[](Error* self, SEL) { return self->code; });
  add(
      "+NSURL", "fileURLWithPath:", +[](Object*, SEL, String* path) {
        auto* made = make<Url>("NSURL");
        made->path = path->text;
        return made_autoreleased(made);
      });
  add(
      "+NSArray", "arrayWithObject:", +[](Object*, SEL, Object* object) {
        auto* made = make<Array>("NSArray");
        made->objects.emplace_back(object);
        return made_autoreleased(made);
      });
}

}  // namespace lily::simulated

extern "C" int sysctlbyname(const char* name, void* old_value, size_t* old_bytes, void*, size_t) {
  if (std::strcmp(name, "kern.memorystatus_vm_pressure_level") != 0) return -1;
  if (old_value == nullptr || *old_bytes < sizeof(int)) return -1;
  std::memcpy(old_value, &lily::simulated::settings().memory_pressure, sizeof(int));
  *old_bytes = sizeof(int);
  return 0;
}
