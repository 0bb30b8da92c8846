"""What the bench's requests ask for, for gunicorn. It notes moments on standard output."""
import os
import time
from urllib.parse import parse_qs


def note(what, request):
    os.write(1, b"%s %s %d\n" % (what, request.encode(), time.monotonic_ns()))


def app(environ, start_response):
    query = parse_qs(environ["QUERY_STRING"])

    def number(name):
        return int(query.get(name, ["0"])[0])

    request = query["id"][0]
    note(b"b", request)
    if not number("now"):
        while environ["wsgi.input"].read(1 << 16):
            pass
    time.sleep(number("work") / 1000)
    size, parts = number("size"), max(1, number("parts"))
    headers = [] if number("chunked") else [("Content-Length", str(size * parts))]
    write = start_response("200 OK", headers)
    if number("early"):
        write(b"")
        time.sleep(number("early") / 1000)
        note(b"m", request)

    def body():
        for i in range(parts):
            if i > 0:
                time.sleep(number("pause") / 1000)
                note(b"m", request)
            if i == parts - 1:
                note(b"l", request)
            yield b"x" * size

    return body()
