"""What the compiler makes of some hundreds of programs, kept as text and digests: a change shows what it changes.

    pytest tests/test_goldens.py --slow                     every program
    pytest tests/test_goldens.py --slow --renew-goldens     keep what is made now
    python -m tests.goldens NAME                            the plan and the kernels of one program
    python -m tests.goldens NAME --against REVISION         how they differ from what another revision makes
"""
