"""Element types: narrow floats, complex numbers, quantized ones, bits."""
