// Answers of the API v1, as far as the page uses them.
export interface Latency {
  slice: string;
  procedure: string;
  // Procedures in the interval.
  count?: number;
  p50_us?: number | null;
  p99_us?: number | null;
  objective_us?: number | null;
  late_ratio?: number | null;
}

export interface Traffic {
  uplink_packets?: number;
  uplink_octets?: number;
  downlink_packets?: number;
  downlink_octets?: number;
  dropped_packets?: number;
}

export interface Overview {
  registered: number;
  connected: number;
  sessions: number;
  ran_nodes: number;
  procedures_per_second?: number | null;
  latencies?: Latency[];
  user_plane?: Traffic | null;
  hosts?: number | null;
  alarms?: { critical: number; major: number; minor: number; warning: number };
}

export interface PduSession {
  id: number;
  supi?: string;
  dnn: string;
  slice: string;
  address?: string | null;
  upf?: string | null;
  qfi?: number | null;
  five_qi?: number | null;
  ipv6?: string | null;
  state?: string;
  relocating?: boolean;
  uplink_bps?: number | null;
  downlink_bps?: number | null;
  uplink_octets?: number | null;
  downlink_octets?: number | null;
}

export interface Ue {
  supi: string;
  rat: string;
  state: string;
  connected: boolean;
  guti?: string | null;
  ran_node?: string | null;
  ran_node_name?: string | null;
  tracking_area?: string | null;
  host?: string | number | null;
  msisdn?: string | null;
  sessions: number | PduSession[];
}

export interface RanNode {
  id: string;
  name?: string | null;
  kind: string;
  address?: string | null;
  tracking_areas?: (string | number)[];
  slices?: string[];
  connected_ues?: number | null;
  since?: string | null;
}

export interface Host {
  id: number | string;
  address?: string | null;
  machine?: string | null;
  state?: string;
  buckets?: number | null;
  replicas?: number | null;
  ues?: number | null;
  // CPU time of the process.
  cpu_us?: number | null;
  shard?: number | null;
}

export interface Balancer {
  id: number;
  address?: string | null;
  state?: string;
  holds_n4?: boolean;
}

export interface Upf {
  name: string;
  node?: string | null;
  associated?: boolean;
  user_plane?: { sessions: number; traffic: Traffic } | null;
}

export interface Alarm {
  id: string | number;
  kind: string;
  severity: string;
  raised_at: string;
  cleared_at?: string | null;
  object: string;
  detail: string;
  acknowledged_by?: string | null;
}

export interface Ambr {
  uplink_bps: number;
  downlink_bps: number;
}

export interface SubscribedDnn {
  dnn: string;
  types: string[];
  ambr: Ambr;
  five_qi: number;
  arp_priority: number;
}

export interface SubscribedSlice {
  snssai: { sst: number; sd: number | null };
  default: boolean;
  dnns: SubscribedDnn[];
}

export interface Subscriber {
  imsi: string;
  supi?: string;
  msisdn?: string | null;
  k?: string;
  opc?: string;
  amf?: string;
  authentication_method?: "5g-aka" | "eap-aka-prime" | null;
  ipv4?: string | null;
  subscription: {
    slices: SubscribedSlice[];
    ambr: Ambr;
    only?: "4g" | "5g" | null;
    restricts_dcnr?: boolean;
    rfsp?: number | null;
  };
}

export interface Validation {
  valid: boolean;
  errors?: (string | { pointer?: string; line?: number; detail: string })[];
  changes?: { key: string; old?: unknown; new?: unknown; applies?: string }[];
}

export interface Preview {
  // Null: the file has errors.
  rows: number | null;
  valid: boolean;
  errors: { line?: number; detail: string }[];
  // Rows whose subscriber is there already.
  existing: number;
}

export interface Import {
  id: string | number;
  state: string;
  rows: number;
  done: number;
  detail?: string | null;
}
