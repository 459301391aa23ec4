"""The privacy gate: decides what may leave this machine.

`lily.gate` imports nothing of Lily but the native encoder, so that it can be audited alone, and
opens no socket.
"""
