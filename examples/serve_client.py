"""A client of `streamfp serve` with the standard library only: python3 serve_client.py http://127.0.0.1:8080 IMAGE [LABEL]"""

import json
import sys
import urllib.parse
import urllib.request
import uuid


def call(method, url, body=None, **headers):
    request = urllib.request.Request(url, data=body, method=method, headers=headers)  # with a token: Authorization="Bearer ..."
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


base, path, label = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
image = open(path, "rb").read()
if label:  # repeat it with the same key until it succeeds: it is learned once
    url = f"{base}/v1/samples?{urllib.parse.urlencode({'label': label, 'name': path})}"
    print("sample", call("POST", url, image, **{"Idempotency-Key": str(uuid.uuid4())})["id"], "will be learned as", label)
else:
    answer = call("POST", f"{base}/v1/predict?top=3", image)["predictions"][0]
    print("unknown" if answer["is_unknown"] else " ".join(f"{c['name']} {c['probability']:.2f}" for c in answer["classes"]))
