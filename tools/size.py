"""Print the size of `src/`: lines of code without blanks, comments and docstrings, and files.

    python tools/size.py [FOLDER]

With `-v` it prints each package as well.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(text: str) -> int:
    """Lines of Python that hold code: a string over three lines counts as three, a docstring as none."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def main() -> None:
    """Count the files below a folder, `src` unless it is named."""
    words = [word for word in sys.argv[1:] if word != "-v"]
    root = Path(words[0] if words else Path(__file__).parent.parent / "src" / "holdfast")
    sizes, files = Counter[str](), Counter[str]()
    for path in sorted(root.rglob("*.py")):
        package = path.relative_to(root).parts[0]
        sizes[package] += lines_of_code(path.read_text())
        files[package] += 1
    if "-v" in sys.argv:
        for package, lines in sizes.most_common():
            print(f"{lines:7,} lines of code in {files[package]:3} files: {package}")
    print(f"{sizes.total():7,} lines of code in {files.total():3} files")


if __name__ == "__main__":
    main()
