import numpy as np
import pytest

from skident.cli.tables import read_table


def written(folder, text, encoding="utf-8"):
    path = folder / "X.csv"
    path.write_text(text, encoding=encoding)
    return path


READABLE = [
    ("1,2\n3,4\n", None),
    ("a,b\n1,2\n3,4\n", ["a", "b"]),
    ("a;b\r\n1;2\r\n\r\n3;4", ["a", "b"]),
    ("1\t2\n3\t4\n\n", None),
    ("x 1 , y|z\n1, 2\n3 ,4e0\n", ["x 1", "y|z"]),
    ('"a, b","c"\n1,2\n3,4\n', ["a, b", "c"]),
    ("\ufeff1,2\n3,4\n", None),
    ("1,b\n1,2\n3,4\n", ["1", "b"]),
]


@pytest.mark.parametrize(("text", "names"), READABLE)
def test_read(text, names, tmp_path):
    X, found = read_table(written(tmp_path, text), 2)
    np.testing.assert_array_equal(X, [[1.0, 2.0], [3.0, 4.0]])
    assert found == names


UNREADABLE = [
    ("a,b\n1,2\n3,x\n", r"X.csv, line 3, column 2 \(b\): 'x' is not a finite number"),
    ("1,2\n3,\n", "line 2, column 2: '' is not a finite number"),
    ("1,2\nnan,3\n", "line 2, column 1: 'nan' is not a finite number"),
    ("1,2\n3,inf\n", "line 2, column 2: 'inf' is not a finite number"),
    ("1,2\n\n3\n", "X.csv, line 3: 1 cells, but 2 columns"),
    ("1;2\n3,5;4\n", "line 2, column 1: '3,5' is not a finite number"),
    ("a,b\n", "X.csv has a header but no rows"),
    ("", "X.csv has no rows"),
    ("\n \n", "X.csv has no rows"),
    ("1,2,3\n4,5,6\n", "X.csv has 3 columns, but the model has 2 inputs"),
]


@pytest.mark.parametrize(("text", "message"), UNREADABLE)
def test_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, text), 2)


def test_other_files(tmp_path):
    with pytest.raises(ValueError, match="is not a CSV file in UTF-8"):
        read_table(written(tmp_path, "\u00e9,b\n1,2\n", encoding="latin-1"))
    with pytest.raises(FileNotFoundError, match="missing.csv"):
        read_table(tmp_path / "missing.csv")
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_table(tmp_path)
