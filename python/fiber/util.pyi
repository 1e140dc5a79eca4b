# util.pyi - types of util; the rest is multiprocessing.util's.
from multiprocessing.util import *

def is_in_interactive_console() -> bool: ...
