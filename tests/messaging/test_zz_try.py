import pytest
from tests.messaging.factories import *
pytestmark = pytest.mark.django_db
def test_a(client):
    p = partner_side()
    a = p.message(1)
    r = client.post("/ebxml/msh", data=a.body, content_type=a.content_type, HTTP_AUTHORIZATION=p.presented.authorization)
    print(r.status_code, r.headers, r.content, a.body.decode()[:3000])
    assert 0
