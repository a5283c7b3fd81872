"""What the standard library raises on a damaged, encrypted or exotic archive."""

import lzma
import zipfile
import zlib
from typing import Final

# NotImplementedError (an unknown compression) and RuntimeError (encrypted) are one class here.
ZIP_ERRORS: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
