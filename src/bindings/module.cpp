// lily._native: puts the pieces of the module together.
#include "bindings/bindings.h"

#ifndef LILY_VERSION
#error "LILY_VERSION is defined by the build"
#endif

NB_MODULE(_native, module) {
  module.doc() = "The engine of Lily: what runs below lily.Engine.";
  module.attr("__version__") = LILY_VERSION;
  lily::register_errors(module);
  lily::bind_kernels(module);
  lily::bind_engine(module);
  lily::bind_encoder(module);
}
