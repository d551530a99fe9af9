#!/usr/bin/env python3
"""Records what the vendors' official clients sign, for a fixed clock and nonce, into fixtures/<provider>/signature/.

    python3 -m venv kit && kit/bin/pip install alibabacloud-tea-openapi==0.4.6 tencentcloud-sdk-python-cvm==3.1.178 \
        huaweicloudsdkecs==3.1.219 oci==2.189.0
    kit/bin/python tests/signatures/record.py

Nothing is sent: the clients' own signing functions are called. The credentials are made up. The key for OCI is
fixtures/oci/signature/test-key.pem, which exists for these vectors only. Crusoe has no official client in the
registry: its vector follows the algorithm of its documentation, written down here on its own.
"""

import base64
import hashlib
import hmac
import json
import pathlib
import time
import types
from importlib.metadata import version

ROOT = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
AK, SK = "AKEXAMPLE0123456789", "made-up-secret/of+the=tests"


def write(provider, package, vectors):
    by = f"{package} {version(package)}" if package else "the algorithm of the vendor's documentation"
    path = ROOT / provider / "signature" / "vectors.json"
    path.write_text(json.dumps({"recorded_with": by, "vectors": vectors}, indent=1, ensure_ascii=False) + "\n")


def aliyun():
    from alibabacloud_tea_openapi.utils import Utils

    cases = [
        ("empty query", "POST", "ecs.cn-hangzhou.aliyuncs.com", "DescribeRegions", "2014-05-26", {}, None),
        ("price of a type", "POST", "ecs.cn-hangzhou.aliyuncs.com", "DescribePrice", "2014-05-26",
         {"RegionId": "cn-hangzhou", "InstanceType": "ecs.gn7i-c8g1.2xlarge", "ResourceType": "instance",
          "SystemDisk.Category": "cloud_essd", "PriceUnit": "Hour"}, None),
        ("characters", "POST", "business.aliyuncs.com", "QuerySkuPriceList", "2017-12-14",
         {"CommodityCode": "ecs", "PriceFactorConditionMap": '{"vm_region_no":["cn-hangzhou-dg-a01"],"a b":["~*é中"]}',
          "PriceEntityCode": "instance_type", "NextPageToken": "a+b/c=="}, None),
        ("security token", "POST", "ecs.us-west-1.aliyuncs.com", "DescribeAvailableResource", "2014-05-26",
         {"RegionId": "us-west-1", "DestinationResource": "InstanceType"}, "made-up-token"),
    ]
    vectors = []
    for name, method, host, action, api, query, token in cases:
        body_hash = Utils.hash(b"", "ACS3-HMAC-SHA256").hex()
        headers = {"host": host, "x-acs-version": api, "x-acs-action": action, "x-acs-date": "2026-11-29T10:00:00Z",
                   "x-acs-signature-nonce": "0123456789abcdef0123456789abcdef", "x-acs-content-sha256": body_hash}
        if token:
            headers["x-acs-security-token"] = token
        request = types.SimpleNamespace(method=method, pathname="/", query=query, headers=headers)
        authorization = Utils.get_authorization(request, "ACS3-HMAC-SHA256", body_hash, AK, SK)
        vectors.append({"name": name, "access_key": AK, "secret_key": SK, "host": host, "action": action, "version": api,
                        "date": headers["x-acs-date"], "nonce": headers["x-acs-signature-nonce"], "token": token,
                        "query": query, "authorization": authorization})
    write("aliyun", "alibabacloud-tea-openapi", vectors)


def tencent():
    from tencentcloud.common import abstract_client, credential
    from tencentcloud.common.http.request import RequestInternal
    from tencentcloud.common.profile.client_profile import ClientProfile
    from tencentcloud.common.profile.http_profile import HttpProfile

    vectors = []
    for name, stamp, region, action, params in [
        ("no parameters", 1796119200, "", "DescribeRegions", {}),
        ("filters", 1796119200, "ap-guangzhou", "DescribeZoneInstanceConfigInfos",
         {"Filters": [{"Name": "instance-charge-type", "Values": ["POSTPAID_BY_HOUR"]}]}),
        ("end of a day", 1796169599, "ap-shanghai", "DescribeInstanceTypeConfigs",
         {"Filters": [{"Name": "zone", "Values": ["ap-shanghai-4", "上海"]}]}),
    ]:
        abstract_client.time = types.SimpleNamespace(time=lambda stamp=stamp: stamp)
        profile = ClientProfile(httpProfile=HttpProfile(endpoint="cvm.tencentcloudapi.com"))
        client = abstract_client.AbstractClient(credential.Credential(AK, SK), region, profile)
        client._apiVersion, client._service = "2017-03-12", "cvm"
        request = RequestInternal("cvm.tencentcloudapi.com", "POST", "/")
        client._build_req_with_tc3_signature(action, params, request, {})
        abstract_client.time = time
        vectors.append({"name": name, "secret_id": AK, "secret_key": SK, "host": request.header["Host"], "timestamp": stamp,
                        "action": action, "region": region, "body": request.data,
                        "content_type": request.header["Content-Type"], "authorization": request.header["Authorization"]})
    write("tencent", "tencentcloud-sdk-python-cvm", vectors)


def huawei():
    from huaweicloudsdkcore.sdk_request import SdkRequest
    from huaweicloudsdkcore.signer.signer import Signer

    vectors = []
    for name, method, host, path, query, headers, body in [
        ("read", "GET", "ecs.cn-north-4.myhuaweicloud.com", "/v1/0123456789abcdef/cloudservers/flavors",
         [("availability_zone", "cn-north-4a")], {}, ""),
        ("two parameters", "GET", "ecs.cn-north-4.myhuaweicloud.com",
         "/v1/0123456789abcdef/cloudservers/flavor-sell-policies", [("limit", "100"), ("flavor_id", "pi2.2xlarge.4 ~")], {}, ""),
        ("price", "POST", "bss.myhuaweicloud.com", "/v2/bills/ratings/on-demand-resources", [],
         {"Content-Type": "application/json"}, '{"project_id":"0123456789abcdef","inquiry_precision":1}'),
    ]:
        sent = {"X-Sdk-Date": "20261129T100000Z", **headers}
        request = SdkRequest(method=method, schema="https", host=host, resource_path=path, query_params=list(query),
                             header_params=sent, body=body)
        signed = Signer(types.SimpleNamespace(ak=AK, sk=SK)).sign(request)
        vectors.append({"name": name, "access_key": AK, "secret_key": SK, "method": method, "host": host, "path": path,
                        "query": query, "content_type": headers.get("Content-Type"), "date": "20261129T100000Z",
                        "body": body, "uri": signed.uri, "authorization": signed.header_params["Authorization"]})
    write("huawei", "huaweicloudsdkcore", vectors)


def oci():
    import requests
    from oci.signer import Signer

    key = (ROOT / "oci" / "signature" / "test-key.pem").read_text()
    tenancy, user, fingerprint = "ocid1.tenancy.oc1..example", "ocid1.user.oc1..example", "20:3b:97:13:55:1c:aa:66:00:00:00:00:00:00:00:01"
    signer = Signer(tenancy, user, fingerprint, None, private_key_content=key)
    vectors = []
    for name, method, url, body in [
        ("read", "GET", "https://iaas.eu-frankfurt-1.oraclecloud.com/20160918/shapes?compartmentId=ocid1.compartment.oc1..example&limit=100", None),
        ("read with a page", "GET", "https://iaas.us-ashburn-1.oraclecloud.com/20160918/shapes?compartmentId=a%2Fb&page=AAAA%3D%3D", None),
    ]:
        request = requests.Request(method, url, headers={"date": "Sun, 29 Nov 2026 10:00:00 GMT"}, data=body).prepare()
        signed = signer.do_request_sign(request)
        vectors.append({"name": name, "key_id": f"{tenancy}/{user}/{fingerprint}", "method": method, "url": url,
                        "date": "Sun, 29 Nov 2026 10:00:00 GMT", "authorization": signed.headers["authorization"]})
    write("oci", "oci", vectors)


def crusoe():
    access, secret = "EXAMPLEACCESS", base64.urlsafe_b64encode(b"made-up secret of the tests \xff\xfe").decode().rstrip("=")
    vectors = []
    for name, method, path, query in [
        ("capacities", "GET", "/v1alpha5/capacities", {}),
        ("types", "GET", "/v1alpha5/projects/p-1/compute/vms/types", {"product_name": "h100-80gb-sxm-ib.8x", "limit": "10"}),
    ]:
        stamp = "2026-11-29T10:00:00+00:00"
        text = "&".join(f"{name}={value}" for name, value in sorted(query.items()))
        payload = f"{path}\n{text}\n{method}\n{stamp}\n"
        raw = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
        signature = base64.urlsafe_b64encode(hmac.new(raw, payload.encode(), hashlib.sha256).digest()).decode().rstrip("=")
        vectors.append({"name": name, "access_key": access, "secret_key": secret, "method": method, "path": path,
                        "query": query, "date": stamp, "authorization": f"Bearer 1.0:{access}:{signature}"})
    write("crusoe", None, vectors)


for record in (aliyun, tencent, huawei, oci, crusoe):
    record()
