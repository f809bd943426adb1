{{- define "vireo.slices" }}
{{- range $name, $slice := .Values.slices }}

[slice.{{ $name | quote }}]
snssai = { sst = {{ int $slice.sst }}{{ with $slice.sd }}, sd = {{ . | quote }}{{ end }} }
{{- with $slice.slo }}
slo = { all = {{ . | quote }} }
{{- end }}
{{- end }}
{{- end }}

{{/* vireo.toml of controllers, balancers and hosts. */}}
{{- define "vireo.toml" }}
{{- $v := .Values }}
[core]
plmns = {{ include "vireo.texts" $v.core.plmns }}
tacs = {{ include "vireo.numbers" $v.core.tacs }}
amf = { region = {{ int $v.core.amf.region }}, set = {{ int $v.core.amf.set }}, pointer = {{ int $v.core.amf.pointer }} }
{{- include "vireo.slices" . }}
{{- include "vireo.dataNetworks" (list . (list)) }}

[n2]
driver = {{ $v.balancers.sctp | quote }}
{{- if gt (len $v.balancers.addresses) 1 }}
# A gNB is asked for an association with each balancer.
endpoints = {{ include "vireo.texts" $v.balancers.addresses }}
{{- end }}
{{- range $v.balancers.allow }}

[[n2.allow]]
addresses = {{ .addresses | quote }}
{{- with .plmn }}
plmn = {{ . | quote }}
{{- end }}
{{- with .nodeIds }}
node-ids = {{ include "vireo.numbers" . }}
{{- end }}
{{- end }}

[n4]
node-id = {{ include "vireo.nodeId" . | quote }}
{{- $n4 := list }}
{{- range concat $v.upfs $v.externalUpfs }}{{ $n4 = append $n4 .n4 }}{{ end }}
allow = {{ include "vireo.texts" ($n4 | uniq) }}

[upf]
enabled = false
{{- range concat $v.upfs $v.externalUpfs }}

[[external-upf]]
name = {{ .name | quote }}
n4 = "{{ .n4 }}:8805"
{{- with .dnns }}
dnns = {{ include "vireo.texts" . }}
{{- end }}
{{- end }}

[cluster]
hosts = {{ int $v.hosts.required }}
address-parts = {{ int $v.hosts.addressParts }}
tls = { certificate = "/etc/vireo-tls/tls.crt", key = "/etc/vireo-tls/tls.key", authorities = "/etc/vireo-tls/ca.crt", name = {{ $v.tls.name | quote }} }
{{- with $v.controllers.etcd.endpoints }}
etcd = {{ include "vireo.texts" . }}
{{- end }}
{{- with $v.hosts.scaling }}
{{- if .enabled }}

[scaling]
least = {{ int .least }}
most = {{ int .most }}
idle = {{ int .idle }}
high = {{ printf "%.4f" (float64 .high) }}
low = {{ printf "%.4f" (float64 .low) }}
lasts = {{ .lasts | quote }}
kubernetes = { stateful-set = "{{ include "vireo.fullname" $ }}-host" }
{{- end }}
{{- end }}

[replication]
mode = {{ $v.replication.mode | quote }}
replicas = {{ int $v.replication.replicas }}

[state]
ues = {{ int64 $v.hosts.ues }}
{{- with $v.state.redis }}
location = "redis"
database = {{ . | quote }}
{{- end }}

[subscribers]
database = {{ $v.subscribers.postgres.url | default "/var/lib/vireo-subscribers/subscribers.db" | quote }}

[api]
listen = "0.0.0.0:{{ int $v.api.port }}"
{{- if $v.api.tokenSecret }}
token-file = "/etc/vireo-api/token"
{{- end }}

[log]
level = {{ $v.log.level | quote }}
{{- with $v.extraConfig }}

{{ . | trim }}
{{- end }}
{{- end }}

{{/* vireo.toml of a UPF: (list ROOT UPF). */}}
{{- define "vireo.upfToml" }}
{{- $root := index . 0 }}
{{- $v := $root.Values }}
{{- $upf := index . 1 }}
[upf]
n4 = "{{ $upf.n4 }}:8805"
{{- if not $upf.modules }}
n3 = {{ include "vireo.texts" $upf.n3 }}
{{- end }}
# The balancers, which have one Node ID.
control-planes = [{ node-id = {{ include "vireo.nodeId" $root | quote }}, addresses = {{ include "vireo.texts" $v.balancers.addresses }} }]
{{- with $v.protect }}
protect = {{ include "vireo.texts" . }}
{{- end }}
{{- with $upf.maxSessions }}
max-sessions = {{ int64 . }}
{{- end }}
{{- if $upf.hostRoutes }}
host-routes = true
{{- end }}
{{- include "vireo.slices" $root }}
{{- include "vireo.dataNetworks" (list $root ($upf.dnns | default list)) }}

[datapath]
driver = {{ $upf.driver | default "sockets" | quote }}
{{- with $upf.interfaces }}
interfaces = {{ include "vireo.texts" . }}
{{- end }}
{{- with $upf.nextHops }}
next-hops = {{ include "vireo.texts" . }}
{{- end }}
{{- with $upf.workers }}
workers = {{ int . }}
{{- end }}
{{- range $upf.modules }}

[[datapath.module]]
n3-interface = {{ .n3Interface | quote }}
n3-address = {{ .n3Address | quote }}
n6-interface = {{ .n6Interface | quote }}
{{- with .nextHops }}
next-hops = {{ include "vireo.texts" . }}
{{- end }}
{{- with .cores }}
cores = {{ include "vireo.numbers" . }}
{{- end }}
{{- end }}

[log]
level = {{ $v.log.level | quote }}
{{- end }}
