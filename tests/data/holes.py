"""A tar archive of a file that is all holes: it takes no room in the archive, however large it is."""

import gzip
import tarfile

SIZE, EXTENDED, SUM = slice(483, 495), 482, slice(148, 156)  # where GNU's header of such a file has what


def with_holes(name: str, size: int, link: str = "") -> bytes:
    """The archive, packed; with a second name that leads to the file, if there is to be one."""
    member = tarfile.TarInfo(name)
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[EXTENDED], header[SIZE], header[SUM] = 0, f"{size:011o}\0".encode(), b" " * 8
    header[SUM] = f"{sum(header):06o}\0 ".encode()
    entries = bytes(header)
    if link:
        other = tarfile.TarInfo(link)
        other.type, other.linkname = tarfile.LNKTYPE, name
        entries += other.tobuf(tarfile.GNU_FORMAT)
    return gzip.compress(entries + bytes(1024))
