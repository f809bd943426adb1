"""What the UPF says of requests that are not right: the cause and the element at fault."""

from asking import address, established, request
from peer import *  # noqa: F403 (scapy's elements come with it)
from world import GNB, PFCP_PORT, UPF


def refused(cp, octets):
    """Cause, offending element and failed PDR or FAR of the answer to a session request of these octets."""
    cp.sequence += 1
    octets = octets[:12] + cp.sequence.to_bytes(3, "big") + octets[15:]
    cp.socket.sendto(octets, (UPF, PFCP_PORT))
    answer = cp.answer_to(cp.sequence)[0].payload
    check(not find(answer, IE_FSEID), "a session in spite of it")
    offending = [element.type for element in find(answer, IE_OffendingIE)]
    return one(answer, IE_Cause).cause, offending[0] if offending else None


def without(body, kind):
    """The request without the first element of a class."""
    def strip(elements):
        for n, element in enumerate(elements):
            if isinstance(element, kind):
                del elements[n]
                return True
            if hasattr(element, "IE_list") and strip(element.IE_list):
                return True
        return False
    check(strip(body.IE_list), f"no {kind.__name__}")
    return bytes(PFCP(S=1, seid=0) / body)


def elements(world, cp, gnb):
    def asked():
        return request(cp, 0x70, address(70))
    cases = [
        (IE_NodeId, MISSING, 60), (IE_FSEID, MISSING, 57), (IE_PDR_Id, MISSING, 56), (IE_Precedence, MISSING, 29),
        (IE_PDI, MISSING, 2), (IE_SourceInterface, MISSING, 20), (IE_FTEID, CONDITIONAL_MISSING, 21),
        (IE_OuterHeaderRemoval, CONDITIONAL_MISSING, 95), (IE_ApplyAction, MISSING, 44),
        (IE_ForwardingParameters, CONDITIONAL_MISSING, 4), (IE_GateStatus, MISSING, 25),
        (IE_MeasurementMethod, MISSING, 62), (IE_ReportingTriggers, MISSING, 37),
    ]
    for kind, cause, element in cases:
        found = refused(cp, without(asked(), kind))
        check(found == (cause, element), f"without {kind.__name__}: cause and element {found}")
    whole = bytes(PFCP(S=1, seid=0) / asked())
    # the Node ID (type 60) with too few octets, then one of a kind that does not exist
    at = whole.index(b"\x00\x3c\x00\x05")
    short = whole[:at + 3] + b"\x02" + whole[at + 4:at + 6] + whole[at + 9:]
    short = short[:2] + (len(short) - 4).to_bytes(2, "big") + short[4:]
    check(refused(cp, short) == (INVALID_LENGTH, 60), f"a short element: {refused(cp, short)}")
    wrong = whole[:at + 4] + b"\x0f" + whole[at + 5:]
    check(refused(cp, wrong) == (INCORRECT, 60), f"a wrong value: {refused(cp, wrong)}")
    # one that nobody knows, and a vendor's, are passed over
    body = asked()
    unknown = bytes.fromhex("03e70003010203") + bytes.fromhex("80010003000a01")
    octets = bytes(PFCP(S=1, seid=0) / body) + unknown
    octets = octets[:2] + (len(octets) - 4).to_bytes(2, "big") + octets[4:]
    cp.sequence += 1
    octets = octets[:12] + cp.sequence.to_bytes(3, "big") + octets[15:]
    cp.socket.sendto(octets, (UPF, PFCP_PORT))
    answer = cp.answer_to(cp.sequence)[0].payload
    check(one(answer, IE_Cause).cause == ACCEPTED, "unknown elements are not passed over")
    check(cp.cause(PFCPSessionDeletionRequest(), one(answer, IE_FSEID).seid) == ACCEPTED, "deletion refused")
    return f"{len(cases) + 2} requests with an element missing or wrong, each refused by its name; unknown ones passed over"


def features(world, cp, gnb):
    """What the UPF does not announce: refused by cause and element. Addresses of others and of nobody, too."""
    def changed(change):
        body = request(cp, 0x73, address(73))
        change(body)
        return refused(cp, bytes(PFCP(S=1, seid=0) / body))

    def forwarding(element):
        return lambda body: find(body, IE_ForwardingParameters)[0].IE_list.append(element)

    def group(kind, element):
        return lambda body: find(body, kind)[0].IE_list.append(element)

    def value(kind, **fields):
        return lambda body: [setattr(find(body, kind)[0], name, content) for name, content in fields.items()]

    def other_end(body):
        find(body, IE_FTEID)[0].fields = IE_FTEID(V4=1, TEID=7, ipv4=GNB).fields

    def ue(nobody):
        return lambda body: [setattr(element, "ipv4", nobody) for element in find(body, IE_UE_IP_Address)]
    endpoint = IE_CreateTrafficEndpoint(IE_list=[IE_TrafficEndpointId(id=1)])
    cases = [
        ("redirect information", forwarding(IE_RedirectInformation(type="URL", address=b"http://x")), UNSUPPORTED, 38),
        ("header enrichment", forwarding(IE_HeaderEnrichment(name=b"a", value=b"b")), UNSUPPORTED, 98),
        ("forwarding policy", forwarding(IE_ForwardingPolicy(policy_identifier=b"gold")), POLICY, 41),
        ("transport level marking", forwarding(IE_TransportLevelMarking(tos=0xb8, traffic_class=0xfc)), UNSUPPORTED, 30),
        ("traffic endpoint", lambda body: body.IE_list.append(endpoint), UNSUPPORTED, 127),
        ("traffic endpoint in a PDI", group(IE_PDI, IE_TrafficEndpointId(id=1)), UNSUPPORTED, 131),
        ("Ethernet session", value(IE_PDNType, pdn_type=5), UNSUPPORTED, 113),
        ("duplication", value(IE_ApplyAction, DUPL=1), UNSUPPORTED, 44),
        ("two actions", value(IE_ApplyAction, BUFF=1), RULE_FAILURE, 44),
        ("notification without buffering", value(IE_ApplyAction, NOCP=1), RULE_FAILURE, 44),
        ("F-TEID of another node", other_end, RULE_FAILURE, 21),
        ("loopback address", ue("127.0.0.9"), INCORRECT, 93),
        ("multicast address", ue("224.0.0.9"), INCORRECT, 93),
        ("address of the UPF on N3", ue(UPF), INCORRECT, 93),
        ("address of the UPF on N6", ue("10.45.0.1"), INCORRECT, 93),
        ("framed route of another network",
         lambda body: find(body, IE_PDI)[1].IE_list.append(IE_FramedRoute(framed_route="203.0.113.0/24")), RULE_FAILURE, 153),
        ("unknown BAR", group(IE_CreateFAR, IE_BAR_Id(id=9)), RULE_FAILURE, 88),
    ]
    for name, change, cause, element in cases:
        found = changed(change)
        check(found == (cause, element), f"{name}: cause and element {found}")
    check(cp.cause(PFCPPFDManagementRequest(IE_list=[])) == UNSUPPORTED, "PFD management")
    check(world.status()["sessions"] == 0, "a session in spite of it")
    return f"{len(cases) + 1} features and addresses that are not served, each refused by cause and element"


def rules(world, cp, gnb):
    seid, ends = established(cp, request(cp, 0x71, address(71)))
    unknown = PFCPSessionModificationRequest(IE_list=[IE_UpdateFAR(IE_list=[IE_FAR_Id(id=77), IE_ApplyAction(DROP=1)])])
    answer = cp.ask(unknown, seid).payload
    failed = one(answer, IE_FailedRuleId)
    check((one(answer, IE_Cause).cause, failed.far_id) == (RULE_FAILURE, 77), "a FAR that is not there")
    again = cp.ask(request(cp, 0x72, address(71)), 0).payload
    check(one(again, IE_Cause).cause == RULE_FAILURE, "two sessions have one address")
    gnb.ping(ends[1], 0x71, address(71))
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "rules that cannot be had are named, and nothing else changes"


PARTS = [elements, features, rules]
