// An NVRTC for the emulated device: the C++ compiler translates CUDA C with `device.h`, from the folder of this library, to
// a library for this CPU. Compiled code is cached.
//
// The file of machine code has the sections that the runner reads: the path of the library, for the emulated driver, and
// one per kernel. The register counts in the log are invented.
#include <nvrtc.h>

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

struct _nvrtcProgram {
  std::string source, log, cubin;
};

namespace {
std::string folder() {
  Dl_info here;
  dladdr((void *)&nvrtcVersion, &here);
  return std::string(here.dli_fname).substr(0, std::string(here.dli_fname).rfind('/'));
}
// Each kernel with its number of arguments. <regex> would take most of the time of this file's compilation.
std::map<std::string, size_t> kernels(const std::string &source) {
  std::map<std::string, size_t> found;
  const std::string mark = "__global__ void ", bounds = "__launch_bounds__(";
  for (size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at)) {
    at += mark.size();
    if (!source.compare(at, bounds.size(), bounds)) at = source.find(") ", at) + 2;
    size_t open = source.find('(', at), close = source.find(')', open);
    if (close == std::string::npos) break;
    size_t commas = std::count(source.begin() + open, source.begin() + close, ',');
    found[source.substr(at, open - at)] = close == open + 1 ? 0 : 1 + commas;
  }
  return found;
}
std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}
// Converts the source for the CPU. The only buffer whose size a launch determines is declared in the header.
std::string emulated(const std::string &source) {
  std::string text;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("typedef ", 0) && line.rfind("#", 0)) text += line + "\n";
  text = replaced(text, "extern __shared__", "// ");
  text = replaced(text, "__shared__ alignas(64)", "alignas(64) static");
  text = "#include \"device.h\"\nnamespace kernels {\nusing ::max, ::min;\n" + text + "}\n";
  for (auto &[name, count] : kernels(source))
    text += "extern \"C\" int " + name + "_arguments;\nint " + name + "_arguments = " + std::to_string(count) + ";\n";
  return text;
}
std::string read(const std::string &path) {
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}
// Returns the path of the library; empty if the compiler rejects the source.
std::string library(const std::string &source, std::string &log) {
  std::string text = emulated(source), stem = folder() + "/kernels-" + std::to_string(std::hash<std::string>()(text));
  std::string path = stem + ".so", own = stem + "-" + std::to_string(getpid());
  if (!access(path.c_str(), F_OK)) return path;
  std::ofstream(own + ".cpp") << text;
  bool is_made = !system(("g++ " + read(folder() + "/flags") + " " + own + ".cpp -o " + own + ".so </dev/null >" + own + ".log 2>&1").c_str());
  log = read(own + ".log");
  // Renamed at the end, since other processes may look for the file.
  return is_made && !rename((own + ".so").c_str(), path.c_str()) ? path : "";
}
// An ELF file with the path, a section for each kernel, and the sections' names.
std::string machine_code(const std::string &path, const std::map<std::string, size_t> &kernels) {
  std::string names("\0.path\0", 7), body = path + '\0';
  std::vector<Elf64_Shdr> sections(2);
  size_t heads = 2 + kernels.size() + 1, begin = sizeof(Elf64_Ehdr) + heads * sizeof(Elf64_Shdr);
  sections[1].sh_name = 1, sections[1].sh_type = SHT_PROGBITS, sections[1].sh_offset = begin, sections[1].sh_size = body.size();
  for (auto &[name, count] : kernels) {
    sections.push_back(sections[1]);
    sections.back().sh_name = names.size();
    names += ".text." + name + '\0';
  }
  sections.push_back({});
  sections.back().sh_name = names.size(), sections.back().sh_type = SHT_STRTAB;
  names += std::string(".shstrtab") + '\0';
  sections.back().sh_offset = begin + body.size(), sections.back().sh_size = names.size();
  Elf64_Ehdr head{};
  memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64, head.e_ident[EI_DATA] = ELFDATA2LSB, head.e_ident[EI_VERSION] = EV_CURRENT;
  head.e_type = ET_EXEC, head.e_machine = EM_CUDA, head.e_version = EV_CURRENT;
  head.e_shoff = sizeof head, head.e_ehsize = sizeof head, head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shnum = heads, head.e_shstrndx = heads - 1;
  return std::string((char *)&head, sizeof head) + std::string((char *)sections.data(), heads * sizeof(Elf64_Shdr)) + body + names;
}
}  // namespace

extern "C" {
nvrtcResult nvrtcVersion(int *major, int *minor) { *major = 13, *minor = 0; return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetNumSupportedArchs(int *count) { *count = 1; return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetSupportedArchs(int *known) { *known = 80; return NVRTC_SUCCESS; }
const char *nvrtcGetErrorString(nvrtcResult result) { return result ? "as the test asked for" : "no error"; }
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *, int, const char *const *, const char *const *) {
  *program = new _nvrtcProgram{source};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) { delete *program; return NVRTC_SUCCESS; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char *const *) {
  std::string path = library(program->source, program->log);
  if (path.empty()) return NVRTC_ERROR_COMPILATION;
  auto found = kernels(program->source);
  program->cubin = machine_code(path, found);
  for (auto &[name, count] : found)
    program->log += "ptxas info : Compiling entry function '" + name + "' for 'sm_80'\nptxas info : Used 32 registers\n";
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) { *bytes = program->log.size() + 1; return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) { strcpy(log, program->log.c_str()); return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) { *bytes = program->cubin.size(); return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *bytes) { memcpy(bytes, program->cubin.data(), program->cubin.size()); return NVRTC_SUCCESS; }
}
