// Foreign functions by XLA's typed interface, for tests/jax/pjrt_foreign.py: compiled there, against the headers of jax.ffi.include_dir().
#include <cstdint>
#include <string>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// y = scale * x + offsets[0], and the text's length in every element of n
static ffi::Error Scale(float scale, ffi::Span<const int64_t> offsets, std::string_view text, ffi::Buffer<ffi::F32> x,
                        ffi::ResultBuffer<ffi::F32> y, ffi::ResultBuffer<ffi::S32> n) {
  if (x.element_count() != y->element_count()) return ffi::Error(ffi::ErrorCode::kInvalidArgument, "sizes differ");
  for (size_t k = 0; k < x.element_count(); ++k) y->typed_data()[k] = scale * x.typed_data()[k] + offsets[0];
  for (size_t k = 0; k < n->element_count(); ++k) n->typed_data()[k] = text.size() + 100 * n->dimensions().size();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(ScaleHandler, Scale,
                              ffi::Ffi::Bind().Attr<float>("scale").Attr<ffi::Span<const int64_t>>("offsets")
                                  .Attr<std::string_view>("text").Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::S32>>());

static ffi::Error Fails(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y, ffi::Dictionary all) {
  auto text = all.get<std::string_view>("why");
  return ffi::Error(ffi::ErrorCode::kOutOfRange, "refused: " + std::string(text.has_value() ? *text : "no reason"));
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(FailsHandler, Fails,
                              ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Attr<ffi::Dictionary>("given"));

// rows in the order in which they lie in memory; as XLA passes them
static ffi::Error Memory(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t k = 0; k < x.element_count(); ++k) y->typed_data()[k] = x.typed_data()[k] + k;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(MemoryHandler, Memory, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// adds in place: the result lies where the argument does
static ffi::Error InPlace(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.typed_data() != y->typed_data()) return ffi::Error::Internal("the result lies elsewhere");
  for (size_t k = 0; k < x.element_count(); ++k) y->typed_data()[k] += 1;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(InPlaceHandler, InPlace, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// every element is found by a task of its own of the thread pool, and the end is told later
static ffi::Future Tasks(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  const float* from = x.typed_data();
  float* to = y->typed_data();
  for (size_t k = 0; k < x.element_count(); ++k) pool.Schedule([=] { to[k] = 2 * from[k]; });
  pool.Schedule([promise = std::move(promise)]() mutable { promise.SetAvailable(); });
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(TasksHandler, Tasks,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

struct Counted { static ffi::TypeId id; int number; };
ffi::TypeId Counted::id = {};
static ffi::ErrorOr<std::unique_ptr<Counted>> Makes() { return std::make_unique<Counted>(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(StateHandler, Makes, ffi::Ffi::BindInstantiate());
