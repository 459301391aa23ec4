// Carries the exceptions of core/error.h into Python as the classes of lily.errors, which own the
// names. Those are looked up once, when the module loads.
#include "bindings/bindings.h"
#include "core/error.h"

namespace nb = nanobind;

namespace lily {
namespace {

// Held for the life of the process, as the module itself is.
struct ErrorClasses {
  PyObject *base, *invalid_input, *model, *out_of_memory, *device, *context_full, *cancelled;
};

void translate(const std::exception_ptr& thrown, void* payload) {
  const auto& classes = *static_cast<const ErrorClasses*>(payload);
  try {
    std::rethrow_exception(thrown);
  } catch (const InvalidInput& error) {
    PyErr_SetString(classes.invalid_input, error.what());
  } catch (const ModelError& error) {
    PyErr_SetString(classes.model, error.what());
  } catch (const OutOfMemory& error) {
    PyErr_SetString(classes.out_of_memory, error.what());
  } catch (const DeviceError& error) {
    PyErr_SetString(classes.device, error.what());
  } catch (const ContextFull& error) {
    PyErr_SetString(classes.context_full, error.what());
  } catch (const Cancelled& error) {
    PyErr_SetString(classes.cancelled, error.what());
  } catch (const Error& error) {
    PyErr_SetString(classes.base, error.what());
  }
}

}  // namespace

void register_errors(nb::module_&) {
  const nb::module_ errors = nb::module_::import_("lily.errors");
  auto find = [&](const char* name) { return nb::object(errors.attr(name)).release().ptr(); };
  static ErrorClasses classes;
  classes = {.base = find("LilyError"),
             .invalid_input = find("InvalidInput"),
             .model = find("ModelError"),
             .out_of_memory = find("OutOfMemory"),
             .device = find("DeviceError"),
             .context_full = find("ContextFull"),
             .cancelled = find("Cancelled")};
  nb::register_exception_translator(translate, &classes);
}

}  // namespace lily
