{{- define "vireo.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "vireo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods of a role: (list ROOT ROLE). */}}
{{- define "vireo.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "vireo.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "vireo.labels" -}}
{{- $root := index . 0 -}}
{{ include "vireo.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* Image of a part: (list ROOT PART). */}}
{{- define "vireo.image" -}}
{{- $root := index . 0 -}}
{{- $own := dig "image" "tag" "" (index . 1) -}}
{{- $tag := coalesce $own $root.Values.image.tag $root.Chart.AppVersion -}}
{{ printf "%s:%s" $root.Values.image.repository $tag | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- end -}}

{{/* Variable of Kubernetes with the address of the controllers' service. */}}
{{- define "vireo.controllerVariable" -}}
{{- printf "%s_CONTROLLER_SERVICE_HOST" (include "vireo.fullname" . | upper | replace "-" "_") -}}
{{- end -}}

{{/* Node ID of the control plane at UPFs: the SMF set (TS 23.003 28.12). */}}
{{- define "vireo.nodeId" -}}
{{- $plmn := first .Values.core.plmns -}}
{{- $mnc := substr 3 (len $plmn) $plmn -}}
{{- printf "set%d.smfset.5gc.mnc%s%s.mcc%s.3gppnetwork.org" (int .Values.core.smfSet) (ternary "0" "" (eq (len $mnc) 2)) $mnc (substr 0 3 $plmn) -}}
{{- end -}}

{{/* Array of TOML from a list of texts. */}}
{{- define "vireo.texts" -}}
[{{ range $n, $text := . }}{{ if $n }}, {{ end }}{{ $text | quote }}{{ end }}]
{{- end -}}

{{/* Array of TOML from a list of numbers. */}}
{{- define "vireo.numbers" -}}
[{{ range $n, $number := . }}{{ if $n }}, {{ end }}{{ int64 $number }}{{ end }}]
{{- end -}}

{{/* Data networks: (list ROOT NAMES); no names = all. */}}
{{- define "vireo.dataNetworks" -}}
{{- $names := index . 1 -}}
{{- range $name, $dnn := (index . 0).Values.dataNetworks }}
{{- if or (not $names) (has $name $names) }}

[dnn.{{ $name | quote }}]
{{- with $dnn.ipv4Pool }}
ipv4-pool = {{ . | quote }}
{{- end }}
{{- with $dnn.ipv6Pool }}
ipv6-pool = {{ . | quote }}
{{- end }}
{{- with $dnn.dns }}
dns = {{ include "vireo.texts" . }}
{{- end }}
{{- with $dnn.mtu }}
mtu = {{ int64 . }}
{{- end }}
{{- with $dnn.slices }}
slices = {{ include "vireo.texts" . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Probes of the API: a member answers when it has joined its cluster, a UPF when it has started. */}}
{{- define "vireo.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: api }
  periodSeconds: 2
  failureThreshold: 45
readinessProbe:
  httpGet: { path: /healthz, port: api }
  periodSeconds: 5
livenessProbe:
  httpGet: { path: /healthz, port: api }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* Security of pods without capabilities. */}}
{{- define "vireo.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 999
  runAsGroup: 999
  fsGroup: 999
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{/* Security of pods with capabilities, which Kubernetes gives to root only. */}}
{{- define "vireo.rootPodSecurity" -}}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{/* Security of a container with these capabilities. */}}
{{- define "vireo.security" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    {{- with . }}
    add: {{ toJson . }}
    {{- end }}
{{- end -}}

{{/* Directories in memory: state of one pod, sockets, temporary files. */}}
{{- define "vireo.directories" -}}
- name: state
  emptyDir: { medium: Memory, sizeLimit: 64Mi }
- name: run
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: tmp
  emptyDir: {}
{{- end -}}

{{- define "vireo.directoryMounts" -}}
- { name: state, mountPath: /var/lib/vireo }
- { name: run, mountPath: /run/vireo }
- { name: tmp, mountPath: /tmp }
{{- end -}}

{{/* Volumes of a member: (list ROOT SECRET). */}}
{{- define "vireo.memberVolumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap: { name: {{ include "vireo.fullname" $root }} }
- name: certificate
  secret: { secretName: {{ index . 1 }}, defaultMode: 0440 }
{{- with $root.Values.api.tokenSecret }}
- name: token
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{ include "vireo.directories" $root }}
{{- end -}}

{{- define "vireo.memberMounts" -}}
- { name: config, mountPath: /etc/vireo, readOnly: true }
- { name: certificate, mountPath: /etc/vireo-tls, readOnly: true }
{{- if .Values.api.tokenSecret }}
- { name: token, mountPath: /etc/vireo-api, readOnly: true }
{{- end }}
{{ include "vireo.directoryMounts" . }}
{{- end -}}

{{/* Variables from a map. */}}
{{- define "vireo.env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{/* Rules between values that the schema cannot express. */}}
{{- define "vireo.check" -}}
{{- $v := .Values -}}
{{- if and (gt (int $v.controllers.replicas) 1) (not $v.controllers.etcd.endpoints) -}}
{{- fail "controllers.replicas: several controllers need controllers.etcd.endpoints" -}}
{{- end -}}
{{- if and $v.hosts.autoscaling.enabled $v.hosts.scaling.enabled -}}
{{- fail "hosts.scaling, hosts.autoscaling: enable one of both" -}}
{{- end -}}
{{- if and $v.hosts.scaling.enabled $v.state.redis -}}
{{- fail "hosts.scaling: hosts with state.redis migrate no UEs; use hosts.replicas or hosts.autoscaling" -}}
{{- end -}}
{{- $most := ternary (int $v.hosts.autoscaling.maxReplicas) (int $v.hosts.replicas) $v.hosts.autoscaling.enabled -}}
{{- if $v.hosts.scaling.enabled -}}
{{- $most = add (int $v.hosts.scaling.most) (int $v.hosts.scaling.idle) -}}
{{- end -}}
{{- if gt $most (int $v.hosts.addressParts) -}}
{{- fail "hosts.addressParts: each host needs one, also those that scaling adds and idle ones" -}}
{{- end -}}
{{- $least := ternary (int $v.hosts.autoscaling.minReplicas) (int $v.hosts.replicas) $v.hosts.autoscaling.enabled -}}
{{- if $v.hosts.scaling.enabled -}}
{{- $least = int $v.hosts.scaling.least -}}
{{- end -}}
{{- if gt (int $v.hosts.required) $least -}}
{{- fail "hosts.required: more than hosts.replicas (autoscaling.minReplicas, scaling.least) may never join" -}}
{{- end -}}
{{- if and $v.state.redis (ne $v.replication.mode "none") -}}
{{- fail "replication.mode: only none is allowed with state.redis" -}}
{{- end -}}
{{- if and $v.state.redis (not $v.state.keySecret) -}}
{{- fail "state.keySecret: hosts seal records in Redis with one key" -}}
{{- end -}}
{{- if not (or $v.upfs $v.externalUpfs) -}}
{{- fail "upfs, externalUpfs: a cluster needs a UPF" -}}
{{- end -}}
{{- $names := dict -}}
{{- range concat $v.upfs $v.externalUpfs -}}
{{- if hasKey $names .name -}}
{{- fail (printf "upfs: two UPFs have the name %s" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- range .dnns -}}
{{- if not (hasKey $v.dataNetworks .) -}}
{{- fail (printf "upfs: there is no data network %s" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.subscribers.homeNetworkKeys (not $v.subscribers.homeNetworkSecret) -}}
{{- fail "subscribers.homeNetworkSecret: home network keys are files of it" -}}
{{- end -}}
{{- end -}}

{{/* Annotation of Multus from a list of networks, as JSON. */}}
{{- define "vireo.networks" -}}
{{- $networks := list -}}
{{- range . -}}
{{- $network := dict "name" .name "interface" .interface -}}
{{- if .namespace }}{{ $_ := set $network "namespace" .namespace }}{{ end -}}
{{- if .ips }}{{ $_ := set $network "ips" .ips }}{{ end -}}
{{- $networks = append $networks $network -}}
{{- end -}}
{{ toJson $networks }}
{{- end -}}
